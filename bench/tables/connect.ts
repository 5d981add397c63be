/** Connection setup. */
import { Cmtime, type Connector, Ends, type Times } from '../contenders/connects.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme, type Finding, type Target } from '../report/targets.js';
import type { Rig } from '../rig/program.js';
import { median } from '../rig/stats.js';
import { type Context, type Subject, Unavailable } from './subject.js';

interface ConnectRow {
  readonly contender: string;
  readonly times: Times[];
  skipped?: string;
}

export interface ConnectData {
  /** Number of connections in each measurement. */
  readonly count: number;
  readonly host: readonly ConnectRow[];
  readonly guest: readonly ConnectRow[];
  /** A description of the virtual machine, or the reason why there is none. */
  readonly machine: string;
}

const NET = 'Node net';
/** The links that are measured in the virtual machine, where an emulated program takes seconds to start. */
const GUEST_LINKS = ['packet', 'udp'];
const MOST_GUEST_ROUNDS = 2;
const COUNT = 100;

export const connect: Subject<ConnectData> = {
  name: 'connect',
  title: 'Connections per second',

  async measure(context: Context) {
    const { settings, progress } = context;
    const links = [...new Set(context.ours().map(({ link }) => link))];
    const ids = (some: readonly string[]) => some.map((link) => new Ends(`${link}, ids`, 'ids', link));
    const connections = links.map((link) => new Ends(`${link}, connect`, 'connect', link));
    const net = new Ends(NET, 'net');
    const options = { count: COUNT, rounds: settings.rounds, progress };
    const host = await measureAll(await context.host(), [...ids(links), ...connections, net], options);
    try {
      const rig = await context.guest();
      const all = [...ids(links.filter((link) => GUEST_LINKS.includes(link))), net, new Cmtime(rig)];
      const rounds = settings.isQuick ? 1 : Math.min(settings.rounds, MOST_GUEST_ROUNDS);
      const guest = await measureAll(rig, all, { ...options, rounds });
      return { count: COUNT, host, guest, machine: rig.description };
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      return { count: COUNT, host, guest: [], machine: error.message };
    }
  },

  sheets({ count, host, guest, machine }) {
    const note =
      'The time from the start of the first connection until the client has established the last one, without disconnecting. ids: an rdma_cm id and a queue pair with rings of one request, address and route resolution, REQ, REP and RTU, the same as cmtime. connect: `device.connect`, which also registers memory and posts receives. Node net: connected sockets; the kernel completes the handshake before the other program accepts.';
    const here = sheet('between two processes of this machine', host, count, [note]);
    if (guest.length === 0) return [{ ...here, notes: [note, `Not measured with rxe: ${machine}.`] }];
    const rxe = 'cmtime takes all connections through each step together; the figure is its "full connect" time.';
    return [here, sheet(`in ${machine}`, guest, count, [rxe])];
  },

  targets: [
    target('connect', 'inTurn', 3000),
    target('connect', 'atOnce', 6000),
    target('ids', 'inTurn', 5000),
    target('ids', 'atOnce', 10_000),
    {
      target: 'connections one after another by `device.connect`: those of Node net divided by ours',
      most: 5,
      judge: ({ host, count }) => {
        const [own, net] = [fastest(host, 'connect', 'inTurn', count), rate(ofNet(host), 'inTurn', count)];
        return own && net ? { value: net / own.value, by: own.by } : undefined;
      },
    },
    {
      target: 'connections at once by ids in the guest, relative to rxe with cmtime',
      least: 0.5,
      judge: ({ guest, count }) => {
        const own = fastest(guest, 'ids', 'atOnce', count);
        const rxe = rate(
          guest.find(({ contender }) => contender.startsWith('rxe')),
          'atOnce',
          count,
        );
        return own && rxe ? { ...own, value: own.value / rxe } : undefined;
      },
    },
  ],
};

function target(by: 'connect' | 'ids', how: keyof Times, least: number): Target<ConnectData> {
  const [what, when] = [by === 'ids' ? 'ids' : '`device.connect`', how === 'inTurn' ? 'one after another' : 'at once'];
  return {
    target: `connections per second ${when}, by ${what}`,
    least,
    judge: ({ host, count }) => fastest(host, by, how, count),
  };
}

/** Returns the highest rate of our links. */
function fastest(rows: readonly ConnectRow[], by: string, how: keyof Times, count: number): Finding | undefined {
  return extreme(
    rows.map((row) => {
      const value = row.contender.endsWith(`, ${by}`) ? rate(row, how, count) : undefined;
      return value === undefined ? undefined : { value, by: row.contender };
    }),
    'highest',
  );
}

const ofNet = (rows: readonly ConnectRow[]) => rows.find(({ contender }) => contender === NET);

interface Options {
  readonly count: number;
  readonly rounds: number;
  readonly progress: (what: string) => void;
}

/** Measures each contender in each round. A contender that fails is not measured again. */
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
  const net = ofNet(rows);
  return {
    title: `Connections per second (medians), ${where}`,
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
