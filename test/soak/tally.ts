/** The events of a soak, and the resources of the endpoint before and after it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { MadAgent } from '../../src/cm/madagent.js';
import type { Device } from '../../src/index.js';
import { processResources } from '../verbs/processresources.js';

/** Counts of events by name, in the order of their first occurrence. */
export class Tally {
  readonly counts = new Map<string, number>();

  add(name: string, count = 1): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + count);
  }
}

/** Resources of this process and of its device. */
export interface Resources {
  readonly 'queue pairs': number;
  readonly 'rdma_cm connections': number;
  readonly 'card memory, free bytes': number;
  readonly 'file descriptors': number;
  readonly threads: number;
  readonly timers: number;
  readonly 'heap, bytes': number;
  readonly 'buffers, bytes': number;
  readonly 'resident memory, bytes': number;
}

/** Allowed growth of each resource. The others must be the same. */
const MARGINS: Partial<Record<keyof Resources, number>> = {
  // address handles of peers stay in the card's cache
  'card memory, free bytes': 16 * 1024,
  'heap, bytes': 4 * 2 ** 20,
  'buffers, bytes': 2 ** 20,
  'resident memory, bytes': 48 * 2 ** 20,
};

export async function resourcesOf(device: Device): Promise<Resources> {
  const { core } = await MadAgent.of(device);
  const { files, threads } = await processResources();
  globalThis.gc?.();
  await sleep(10);
  globalThis.gc?.();
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
  return {
    'queue pairs': device.stat().qps.length,
    'rdma_cm connections': core.size,
    'card memory, free bytes': device.card.exports.memAvailable(),
    'file descriptors': files.length,
    threads,
    timers: process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length,
    'heap, bytes': heapUsed,
    'buffers, bytes': arrayBuffers,
    'resident memory, bytes': rss,
  };
}

/** Returns the resources that are not back at the baseline. */
export function leaks(before: Resources, after: Resources): (keyof Resources)[] {
  return (Object.keys(before) as (keyof Resources)[]).filter((name) => {
    const worse = name.includes('free') ? before[name] - after[name] : after[name] - before[name];
    return worse > (MARGINS[name] ?? 0);
  });
}

/** Waits until all resources are back at `before`, or only those of `names`; at most `ms`. */
export async function settled(
  device: Device,
  before: Resources,
  ms: number,
  names: readonly string[] = Object.keys(before),
): Promise<Resources> {
  const end = performance.now() + ms;
  for (;;) {
    const now = await resourcesOf(device);
    if (!leaks(before, now).some((name) => names.includes(name)) || performance.now() > end) return now;
    await sleep(1000);
  }
}
