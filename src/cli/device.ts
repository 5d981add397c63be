/** How commands open devices: `wasm-roce stat` can watch them. */
import { type Device, type OpenOptions, openDevice } from '../index.js';

/** Frames that are kept to explain a failure. */
const TRACE = 256;

/** @throws as `openDevice`; not when the device cannot be published, which nobody has asked for */
export async function openWatched(options: OpenOptions): Promise<Device> {
  const device = await openDevice({ trace: TRACE, ...options });
  await device.publish().catch(() => {});
  return device;
}
