/** mckey of rdma-core as a receiver of a multicast group. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Environment } from './environment.js';
import { GUEST } from './guest/network.js';

const INTERVAL_MS = 20;

/**
 * Runs mckey until it has received its messages, and sends them meanwhile. Linux reports the membership by IGMP before
 * rxe has attached mckey's queue pair to the group. rxe drops what arrives in between, and mckey then waits for ever.
 * @param count messages that mckey waits for
 * @param send sends one message to the group
 */
export async function mckeyReceives(
  { guest }: Environment,
  group: string,
  count: number,
  send: () => Promise<void>,
): Promise<void> {
  await using mckey = guest.spawn(['mckey', '-m', group, '-b', GUEST.ipv4, '-C', String(count)]);
  let hasEnded = false;
  const ended = mckey.exited.finally(() => {
    hasEnded = true;
  });
  while (!hasEnded) {
    await send();
    await sleep(INTERVAL_MS);
  }
  expect((await ended).status).toBe(0);
}
