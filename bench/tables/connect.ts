/** Connections that come and go. */
import { Cmtime, type Connector, Ends, type Times } from '../contenders/connects.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import type { Rig } from '../rig/program.js';
import { median } from '../rig/stats.js';
import { type Context, type Subject, Unavailable } from './subject.js';

interface ConnectRow {
  readonly contender: string;
  readonly times: Times[];
  skipped?: string;
}

export interface ConnectData {
  /** Connections of each measurement. */
  readonly count: number;
  readonly host: readonly ConnectRow[];
  readonly guest: readonly ConnectRow[];
  /** What the virtual machine is, or why there is none. */
  readonly machine: string;
}

const NET = 'Node net';
/** In the virtual machine, where a program takes seconds to start if it is emulated. */
const GUEST_LINKS = ['packet', 'udp'];
const MOST_GUEST_ROUNDS = 2;

export const connect: Subject<ConnectData> = {
  name: 'connect',
  title: 'Connections a second',

  async measure(context: Context) {
    const { settings, progress } = context;
    const count = settings.isQuick ? 50 : 100;
    const links = [...new Set(context.ours().map(({ link }) => link))];
    const ids = (some: readonly string[]) => some.map((link) => new Ends(`${link}, ids`, 'ids', link));
    const connections = links.map((link) => new Ends(`${link}, connect`, 'connect', link));
    const net = new Ends(NET, 'net');
    const options = { count, rounds: settings.rounds, progress };
    const host = await measureAll(await context.host(), [...ids(links), ...connections, net], options);
    try {
      const rig = await context.guest();
      const all = [...ids(links.filter((link) => GUEST_LINKS.includes(link))), net, new Cmtime(rig)];
      const rounds = settings.isQuick ? 1 : Math.min(settings.rounds, MOST_GUEST_ROUNDS);
      const guest = await measureAll(rig, all, { ...options, rounds });
      return { count, host, guest, machine: rig.description };
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      return { count, host, guest: [], machine: error.message };
    }
  },

  sheets({ count, host, guest, machine }) {
    const note =
      "From the first connection's beginning until the client has the last established; they end outside of that time. ids: an id of rdma_cm and a queue pair with rings of one request, address, route, REQ, REP and RTU, which is what cmtime does. connect: `device.connect`, whose connections have registered memory and posted receives besides. Node net: connected sockets, for which the kernel answers before the other program has accepted.";
    const here = sheet('between two processes of this machine', host, count, [note]);
    if (guest.length === 0) return [{ ...here, notes: [note, `Not beside rxe: ${machine}.`] }];
    const rxe = 'cmtime has all connections go through each step together, and tells the time of "full connect".';
    return [here, sheet(`in ${machine}`, guest, count, [rxe])];
  },
};

interface Options {
  readonly count: number;
  readonly rounds: number;
  readonly progress: (what: string) => void;
}

/** Each contender in each round; what fails is not tried again. */
async function measureAll(rig: Rig, all: readonly Connector[], { count, rounds, progress }: Options) {
  const rows = all.map((connector): ConnectRow => ({ contender: connector.name, times: [] }));
  await rig.setMtu(1500);
  for (let round = 0; round < rounds; round++)
    for (const [i, connector] of all.entries()) {
      const row = rows[i] as ConnectRow;
      if (row.skipped !== undefined) continue;
      progress(`round ${round + 1} of ${rounds}: ${connector.name}`);
      try {
        row.times.push(await connector.measure(rig, count));
      } catch (error) {
        row.skipped = (error as Error).message.split('\n')[0] as string;
      }
    }
  return rows;
}

function sheet(where: string, rows: readonly ConnectRow[], count: number, notes: readonly string[]): Sheet {
  const net = rows.find(({ contender }) => contender === NET);
  return {
    title: `Connections a second (medians), ${where}`,
    head: ['', 'one after another', 'Node net is', `${count} at once`, 'Node net is'],
    rows: rows.map((row) => {
      if (row.times.length === 0) return [row.contender, `skipped: ${row.skipped}`];
      const cells = (['inTurn', 'atOnce'] as const).flatMap((how) => {
        const own = rate(row, how, count);
        return [digits(own), ratio(own && rate(net, how, count), own)];
      });
      return [row.contender, ...cells];
    }),
    notes,
  };
}

function rate(row: ConnectRow | undefined, how: keyof Times, count: number): number | undefined {
  const seconds = (row?.times ?? []).flatMap((times) => times[how] ?? []);
  return seconds.length > 0 ? count / median(seconds) : undefined;
}
