/**
 * A card at the far end of a test, which is asked over IPC to do what card B of the demo does.
 * Arguments: the link's kind, the interface, the device's mode.
 */
import { serve } from '../../src/cli/demo/calls.js';
import { createPassive } from '../../src/cli/demo/passive.js';
import type { HostLinkKind } from '../../src/cli/options.js';

const [link, device = '', mode] = process.argv.slice(2);
process.on('disconnect', () => process.exit());
serve(createPassive({ link: link as HostLinkKind, interface: device, mode: mode as 'inline' | 'worker', spinMs: 0 }));
process.send?.({ id: -1 });
