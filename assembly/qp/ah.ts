// Address handles: the path to a peer, for datagrams.

import { Errno } from '../codes';
import { Pd } from '../host/pd';
import { allocate, release } from '../host/pool';
import { PATH_BYTES, Path } from './path';

@unmanaged
@final
export class Ah {
  pd: Pd;
  /** Pending send work requests that refer to it: the posting thread adds, the card subtracts. */
  users: u32;

  /** Creates an address handle from the address vector at scratch(), which must be valid; null when memory is short. */
  static create(pd: Pd): Ah {
    let ah = changetype<Ah>(allocate(AH_BYTES + PATH_BYTES));
    if (changetype<usize>(ah) == 0) return ah;
    ah.pd = pd;
    ah.path.load(false);
    pd.users++;
    return ah;
  }

  get path(): Path {
    return changetype<Path>(changetype<usize>(this) + AH_BYTES);
  }

  use(): void {
    atomic.add<u32>(changetype<usize>(this), 1, offsetof<Ah>('users'));
  }
  release(): void {
    atomic.sub<u32>(changetype<usize>(this), 1, offsetof<Ah>('users'));
  }

  destroy(): Errno {
    if (atomic.load<u32>(changetype<usize>(this), offsetof<Ah>('users')) != 0) return Errno.EBUSY;
    this.pd.users--;
    release(changetype<usize>(this));
    return Errno.OK;
  }
}
const AH_BYTES: usize = 8;
