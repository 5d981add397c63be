/**
 * Tells when the kernel's interfaces or their addresses change (rtnetlink(7): the groups link, ipv4-ifaddr and
 * ipv6-ifaddr). One socket serves the whole process, and only while somebody listens.
 */
import { type NativeWaiter, native } from '../native.js';

const listeners = new Set<() => void>();
let waiter: NativeWaiter | undefined;
let fd = -1;

/**
 * Calls back, in the event loop, after changes; several may come as one call. Does not keep the process running. Where
 * the kernel does not allow it nothing is ever told.
 * @returns ends it
 */
export function watchInterfaces(onChange: () => void): () => void {
  const listener = () => onChange();
  listeners.add(listener);
  if (listeners.size === 1) begin();
  return () => {
    if (listeners.delete(listener) && listeners.size === 0) end();
  };
}

function begin(): void {
  fd = native().netlinkListen();
  if (fd < 0) return;
  waiter = new (native().Waiter)(onReadable);
  if (waiter.open([fd]) === 0) waiter.start(-1, false);
  else end();
}

function end(): void {
  waiter?.close();
  waiter = undefined;
  if (fd >= 0) native().closeFd(fd);
  fd = -1;
}

function onReadable(): void {
  native().netlinkDrain(fd);
  waiter?.start(-1, false);
  for (const listener of [...listeners]) listener();
}
