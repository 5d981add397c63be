/**
 * A card at the far end of a test, which is asked over IPC to do what card B of the demo does.
 * Arguments: the link's kind, the interface.
 */
import { serve } from '../../src/cli/demo/calls.js';
import { createPassive } from '../../src/cli/demo/passive.js';
import type { HostLink } from '../../src/cli/options.js';

const [link, device = ''] = process.argv.slice(2);
process.on('disconnect', () => process.exit());
serve(createPassive({ link: link as HostLink, interface: device, spinMs: 0 }));
process.send?.({ id: -1 });
