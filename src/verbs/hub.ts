/** Hubs of the `memory` link. */

import { checkBoolean, checkOptions } from '../base/options.js';
import { MemoryHub, type MemoryHubOptions } from '../link/memory/link.js';

/**
 * Creates a network for the `memory` links of this process.
 * @throws TypeError for wrong options
 * @example
 * const hub = createMemoryHub();
 * const device = await openDevice({ link: 'memory', hub });
 */
export function createMemoryHub(options: MemoryHubOptions = {}): MemoryHub {
  return new MemoryHub(checkOptions('createMemoryHub', options, { coalesce: checkBoolean }));
}
