/**
 * Card B of the demo in the peer's namespace (netns.ts). The test calls it over IPC.
 * Arguments: kind of the link, interface, mode of the device.
 */
import { serve } from '../../src/cli/demo/ipc.js';
import { createPassive } from '../../src/cli/demo/passive.js';
import type { HostLinkKind } from '../../src/cli/options.js';

const [link, device = '', mode] = process.argv.slice(2);
process.on('disconnect', () => process.exit());
serve(createPassive({ link: link as HostLinkKind, interface: device, mode: mode as 'inline' | 'worker', spinMs: 0 }));
process.send?.({ id: -1 });
