/** Who is measured for connections: two of our programs, or cmtime of rdma-core over rxe. */
import type { Manner } from '../party/connect.js';
import { type GuestRig, RXE } from '../rig/guest.js';
import { PartyProcess } from '../rig/party.js';
import type { Rig } from '../rig/program.js';

/** Seconds until so many connections were established. */
export interface Times {
  /** Each when the one before was there. */
  readonly inTurn?: number;
  readonly atOnce: number;
}

export interface Connector {
  readonly name: string;
  measure(rig: Rig, count: number): Promise<Times>;
}

const PORT = 7471;
/** Connections before it counts: programs are compiled while they run. */
const WARM = 30;

export class Ends implements Connector {
  constructor(
    readonly name: string,
    readonly manner: Manner,
    readonly link?: string,
  ) {}

  async measure(rig: Rig, count: number): Promise<Times> {
    const [a, b] = [PartyProcess.start(rig, 'a', 'connect'), PartyProcess.start(rig, 'b', 'connect')];
    try {
      const { manner, link } = this;
      await Promise.all([
        a.call('open', { manner, link, interface: rig.a.interface }),
        b.call('open', { manner, link, interface: rig.b.interface }),
      ]);
      await b.call('listen', rig.b.address, PORT);
      const connect = (many: number, isAtOnce: boolean) =>
        a.call<number>('connect', rig.b.address, PORT, many, isAtOnce);
      await connect(WARM, false);
      await connect(WARM, true);
      const times = { inTurn: await connect(count, false), atOnce: await connect(count, true) };
      await Promise.all([a.call('close'), b.call('close')]);
      return times;
    } finally {
      for (const end of [a, b]) end.kill();
    }
  }
}

/** It has one manner: all connections go through each step together. */
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

/** Of the first of its two tables, that with queue pairs: `full connect`, average, and microseconds of all. */
function fullConnect(lines: readonly string[]): number {
  const [, total] = /^full connect +\d+ +(\d+)/m.exec(lines.join('\n')) ?? [];
  if (total === undefined) throw new Error(`cmtime printed ${lines.slice(-3).join(' / ')}`);
  return Number(total) / 1e6;
}
