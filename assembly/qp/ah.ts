// Address handles: the way to a peer, for datagrams.
import { Pd } from '../host/pd';
import { allocate, release } from '../host/pool';
import { Errno } from '../limits';
import { PATH_BYTES, Path } from './path';

@unmanaged
@final
export class Ah {
  pd: Pd;
  /** Send work requests that name it and are not done. */
  users: u32;

  /** From the address vector at scratch(), which must be valid; null when memory is short. */
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

  destroy(): Errno {
    if (this.users != 0) return Errno.EBUSY;
    this.pd.users--;
    release(changetype<usize>(this));
    return Errno.OK;
  }
}
const AH_BYTES: usize = 8;
