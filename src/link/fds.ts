/** File descriptors of the addon, by number. */
import { native } from '../native.js';

/** Closes file descriptors. */
export function closeFds(fds: Iterable<number>): void {
  for (const fd of fds) native().closeFd(fd);
}
