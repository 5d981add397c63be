/** The partitions of a device's port. */
import { checkInteger } from '../base/options.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import { Partitions } from './core/partitions.js';

/** Reads the P_Key table of a device's port. */
export function partitionsOf(device: DeviceBase): Partitions {
  const { pkeyTableLength } = device.queryPort();
  return new Partitions(Array.from({ length: pkeyTableLength }, (_, index) => device.queryPkey(index)));
}

/** Returns the index of a P_Key for requests of the application; undefined: the default. @throws RangeError */
export function checkPkeyIndex(device: DeviceBase, index: number | undefined): number {
  if (index === undefined) return partitionsOf(device).defaultIndex;
  return checkInteger('pkeyIndex', index, 0, device.queryPort().pkeyTableLength - 1);
}
