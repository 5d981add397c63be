// Protection domains: a queue pair may use only the regions of its own domain.
import { Errno } from '../codes';
import { allocate, release } from './pool';

@unmanaged
@final
export class Pd {
  /** Objects that belong to it: regions, memory windows, queue pairs, shared receive queues, address handles. */
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
