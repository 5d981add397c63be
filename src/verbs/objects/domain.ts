/** Protection domains as the objects in them know them. */
import type { DeviceBase } from './devicebase.js';
import type { Resource } from './resource.js';

/** A protection domain, as its regions, windows and address handles know it. `device.allocPd` returns a `Pd`. */
export interface Domain extends Resource {
  /** Always `pd`. */
  readonly kind: 'pd';
  /** Device of the domain. */
  readonly device: DeviceBase;
  /** @internal */
  readonly handle: number;
}
