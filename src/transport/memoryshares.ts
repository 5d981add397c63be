/** Shares that the clients of services have of a device's memory. */
import { Shares } from '../base/shares.js';
import type { Context } from '../verbs/context.js';

const shares = new WeakMap<Context, Shares>();

/** Returns the shares of a device. All its services have the same. */
export function memoryShares(device: Context): Shares {
  const known = shares.get(device) ?? new Shares(() => device.query().memoryAvailable);
  shares.set(device, known);
  return known;
}
