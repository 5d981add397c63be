/** Shares that the clients of services have of a device's memory. */
import { Shares } from '../base/shares.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';

const shares = new WeakMap<DeviceBase, Shares>();

/** Returns the shares of a device. All its services have the same. */
export function memoryShares(device: DeviceBase): Shares {
  const known = shares.get(device) ?? new Shares(() => device.query().memoryAvailable);
  shares.set(device, known);
  return known;
}
