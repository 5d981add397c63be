/** Access to the card's second entry, assembly/testing.ts, which exports internals to tests. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../repo/sources.js';
import type { RigQp } from './rig.js';

/** The module, which the setup compiles with the options of asconfig.json. */
export const testingModule = new WebAssembly.Module(readFileSync(join(ROOT, 'build/testing.wasm')));

/** Sets the number of messages that a queue pair has sent and received, modulo 2^24. */
export async function setMessages(qp: RigQp, sent: number, received: number): Promise<void> {
  const { memory } = qp.rig.card;
  const { exports } = await WebAssembly.instantiate(testingModule, { env: { memory } });
  (exports.setMessages as (qp: number, sent: number, received: number) => void)(qp.handle, sent, received);
}
