/** Pollers of the addon for file descriptors. */
import { type NativePoller, native } from '../native.js';
import { errnoError } from './errno.js';

/**
 * Returns a poller, not yet started, that waits until one of the descriptors is readable.
 * @throws VerbsError EIO if the process may not open as many files
 */
export function openPoller(fds: readonly number[], onReadable: () => void): NativePoller {
  const poller = new (native().Poller)(onReadable);
  const result = poller.open(fds);
  if (result === 0) return poller;
  poller.close();
  throw errnoError(result, 'the event loop cannot watch file descriptors; the limit of open files may be too low', {});
}
