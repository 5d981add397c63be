// A protection domain: regions and queue pairs work together only within one.
import { Errno } from '../limits';
import { allocate, release } from './pool';

@unmanaged
@final
export class Pd {
  /** Regions and queue pairs that belong to it. */
  users: u32;

  static create(): Pd {
    return changetype<Pd>(allocate(offsetof<Pd>()));
  }

  destroy(): Errno {
    if (this.users != 0) return Errno.EBUSY;
    release(changetype<usize>(this));
    return Errno.OK;
  }
}
