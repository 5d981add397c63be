// Helpers of the card's exports: recording the Errno of a refused call, and passing 64-bit values as two 32-bit halves.

import { Errno } from './codes';
import { Card } from './host/card';

export function handleOrEnomem(ptr: usize): usize {
  return ptr == 0 ? failWith(Errno.ENOMEM) : ptr;
}

/** Records why a call was refused and returns handle 0. */
export function failWith(errno: Errno): usize {
  Card.get().lastErrno = errno;
  return 0;
}

export function setErrno(errno: Errno): Errno {
  Card.get().lastErrno = errno;
  return errno;
}

export function u64Of(high: u32, low: u32): u64 {
  return ((<u64>high) << 32) | <u64>low;
}
