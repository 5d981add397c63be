/** Contenders of the connection table: two workers of ours, or cmtime of rdma-core over rxe. */

import { type GuestRig, RXE } from '../rig/guest.js';
import type { Rig } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';
import type { Manner } from '../workers/connect.js';

/** Seconds until all connections were established. */
export interface Times {
  /** One connection after another. */
  readonly inTurn?: number;
  readonly atOnce: number;
}

export interface Connector {
  readonly name: string;
  measure(rig: Rig, count: number): Promise<Times>;
}

const PORT = 7471;
/** Connections before the measurement, after which V8 has compiled what they need, and the most time that they take. */
const WARM = 4000;
const WARM_MS = 10_000;
/** Batches whose mean is measured: one of a hundred connections takes some milliseconds only. */
const BATCHES = 5;

export class Ends implements Connector {
  constructor(
    readonly name: string,
    readonly manner: Manner,
    readonly link?: string,
  ) {}

  async measure(rig: Rig, count: number): Promise<Times> {
    const [a, b] = [WorkerProcess.start(rig, 'a', 'connect'), WorkerProcess.start(rig, 'b', 'connect')];
    try {
      const { manner, link } = this;
      await Promise.all([
        a.call('open', { manner, link, interface: rig.a.interface }),
        b.call('open', { manner, link, interface: rig.b.interface }),
      ]);
      await b.call('listen', rig.b.address, PORT);
      const connect = (isAtOnce: boolean) => a.call<number>('connect', rig.b.address, PORT, count, isAtOnce);
      const end = performance.now() + WARM_MS;
      for (let made = 0; made < WARM && performance.now() < end; made += 2 * count) {
        await connect(false);
        await connect(true);
      }
      const batches = async (isAtOnce: boolean) => {
        let seconds = 0;
        for (let i = 0; i < BATCHES; i++) seconds += await connect(isAtOnce);
        return seconds / BATCHES;
      };
      const times = { inTurn: await batches(false), atOnce: await batches(true) };
      await Promise.all([a.call('close'), b.call('close')]);
      return times;
    } finally {
      for (const end of [a, b]) end.kill();
    }
  }
}

/** rdma-core's cmtime. It takes all connections through each step together, so it has no times one after another. */
export class Cmtime implements Connector {
  readonly name = 'rxe, cmtime';

  constructor(readonly rig: GuestRig) {}

  async measure(_: Rig, count: number): Promise<Times> {
    const server = this.rig.spawnRxe('b', ['cmtime', '-b', RXE.b.address, '-c', String(count)]);
    try {
      await this.rig.guest.listening(PORT);
      const words = ['cmtime', '-s', RXE.b.address, '-b', RXE.a.address, '-c', String(count)];
      const client = this.rig.spawnRxe('a', words);
      const lines: string[] = [];
      for await (const line of client.lines()) lines.push(line);
      await client.exited;
      return { atOnce: fullConnect(lines) };
    } finally {
      server.kill();
      await server.exited.catch(() => {});
    }
  }
}

/** Reads `full connect` from the first of cmtime's two tables, the one with queue pairs: the total microseconds. */
function fullConnect(lines: readonly string[]): number {
  const [, total] = /^full connect +\d+ +(\d+)/m.exec(lines.join('\n')) ?? [];
  if (total === undefined) throw new Error(`cmtime printed ${lines.slice(-3).join(' / ')}`);
  return Number(total) / 1e6;
}
