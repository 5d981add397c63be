// What the card's exports have in common: how a call says that it was refused, and how 64 bits come in.
import { Card } from './host/card';
import { Errno } from './limits';

export function handle(ptr: usize): usize {
  return ptr == 0 ? refused(Errno.ENOMEM) : ptr;
}

/** No handle, and why. */
export function refused(errno: Errno): usize {
  Card.get().lastErrno = errno;
  return 0;
}

export function noted(errno: Errno): Errno {
  Card.get().lastErrno = errno;
  return errno;
}

export function join(high: u32, low: u32): u64 {
  return ((<u64>high) << 32) | <u64>low;
}
