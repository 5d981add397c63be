/** The work of `wasm-roce nvme connect-test`: timed reads, and writes that are compared. */
import { createHash } from 'node:crypto';
import type { NvmeNamespace } from '../../nvme.js';
import { failure } from '../exit.js';
import { type Latency, latencyOf } from '../latency.js';

export interface TestOptions {
  /** Bytes of a command. */
  readonly block: number;
  /** Commands that are outstanding. */
  readonly depth: number;
  /** Time of a run. */
  readonly milliseconds: number;
  readonly stop: AbortSignal;
}

/** Data read from a namespace. */
export interface NamespaceRun {
  readonly nsid: number;
  readonly bytes: number;
  readonly blockBytes: number;
  readonly isReadOnly: boolean;
  readonly operations: number;
  readonly operationsPerSecond: number;
  readonly mibPerSecond: number;
  readonly latency: Latency;
}

/** Latencies that a run keeps: the first ones. */
const MAX_TIMES = 2 ** 20;
/** Bytes of a write, and of the read that is compared with it. */
const WRITE_BYTES = 2 ** 17;

/** Reads blocks at random places until the time is up. @throws NvmeError, VerbsError */
export async function readAtRandom(namespace: NvmeNamespace, options: TestOptions): Promise<NamespaceRun> {
  const { nsid, bytes, blockBytes, isReadOnly } = namespace;
  const { block, depth, milliseconds, stop } = options;
  const places = Math.floor(bytes / block);
  const times: number[] = [];
  let operations = 0;
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: depth }, async () => {
      for (let before = performance.now(); before - begun < milliseconds && !stop.aborted; ) {
        await namespace.read(Math.floor(Math.random() * places) * block, block);
        const now = performance.now();
        if (times.length < MAX_TIMES) times.push(now - before);
        operations++;
        before = now;
      }
    }),
  );
  const seconds = (performance.now() - begun) / 1000;
  return {
    ...{ nsid, bytes, blockBytes, isReadOnly, operations },
    operationsPerSecond: Math.round(operations / seconds),
    mibPerSecond: Math.round((operations * block) / seconds / 2 ** 20),
    latency: latencyOf(Float64Array.from(times)),
  };
}

/**
 * Writes bytes to the beginning of a namespace, makes them durable, reads them and compares.
 * @throws CliError when other bytes are read; NvmeError, VerbsError
 */
export async function writeAndCompare(namespace: NvmeNamespace, bytes: number, options: TestOptions): Promise<void> {
  const seed = createHash('sha256').update(String(Math.random())).digest();
  const parts = Array.from({ length: Math.ceil(bytes / WRITE_BYTES) }, (_, i) => i * WRITE_BYTES);
  const atOnce = async (use: (data: Buffer, position: number) => Promise<void>) => {
    const next = parts.values();
    const work = async () => {
      // each takes the next part when it is done with its last
      for (const position of next) {
        if (options.stop.aborted) return;
        await use(patternOf(seed, position, Math.min(WRITE_BYTES, bytes - position)), position);
      }
    };
    await Promise.all(Array.from({ length: options.depth }, work));
  };
  await atOnce((data, position) => namespace.write(position, data));
  await namespace.flush();
  await atOnce(async (data, position) => {
    if (!(await namespace.read(position, data.length)).equals(data))
      throw failure(`namespace ${namespace.nsid} returned other bytes than were written, from byte ${position} on`);
  });
}

/** Bytes that depend on their place. */
function patternOf(seed: Buffer, position: number, length: number): Buffer {
  const data = Buffer.alloc(length, seed);
  for (let at = 0; at < length; at += 512) data.writeDoubleLE(position + at, at);
  return data;
}
