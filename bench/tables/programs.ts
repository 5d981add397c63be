/** C programs on the library for C programs, beside Node, C over sockets, and rxe. */
import { Library } from '../contenders/library.js';
import { Bare, PlainTcp } from '../contenders/native.js';
import { Rxe } from '../contenders/rxe.js';
import { absent, failures, figure, gbps, medianUs, p99Us, reason, select } from '../report/figures.js';
import { bytes, digits, type Sheet } from '../report/sheet.js';
import { type Finding, over, quotient } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { WARM_BYTES, type Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

const SIZES = [65536, 1048576] as const;

export interface ProgramsData {
  readonly host: readonly Row[];
  /** In the virtual machine, with rxe. Empty if there is none. */
  readonly guest: readonly Row[];
}

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const stream = { kind: 'bulk', mtu: 9000, qps: 1, waiting: 'spin', warmMs, ms, warmBytes: WARM_BYTES } as const;
  const ping = { kind: 'pingpong', operation: 'SEND', size: 64, mtu: 1500, qps: 1, warmMs, ms } as const;
  return [
    ...SIZES.flatMap((size) => [
      { ...stream, size, operation: 'WRITE' as const },
      { ...stream, size, operation: 'SEND' as const },
    ]),
    { ...ping, waiting: 'spin' },
    { ...ping, waiting: 'sleep' },
  ];
}

export const programs: Subject<ProgramsData> = {
  name: 'programs',
  title: 'C programs by `wasm-roce run`',

  async measure(context) {
    const node = context.ours().filter(({ link, options }) => link === 'udp' && options.mode === 'inline');
    const all = [new Library(), ...node, new PlainTcp(), new Bare('udp', true), new Bare('udp', false)];
    const host = await measureRounds(await context.host(), all, works(context), roundsOf(context));
    const rig = await context.guest();
    const guest = await measureRounds(rig, [new Library(), new Rxe(rig)], works(context), roundsOf(context));
    return { host, guest };
  },

  sheets({ host, guest }) {
    return [sheet('on this machine', host), sheet('in the virtual machine with rxe', guest)];
  },

  targets: [
    {
      target: 'ib_send_lat of 64 B: median relative to ours in Node',
      most: 0.5,
      judge: ({ host }) => ping(host, { kind: 'ours' }),
    },
    {
      target: 'ib_send_lat of 64 B: median relative to C over TCP',
      most: 1.2,
      judge: ({ host }) => ping(host, { contender: 'C, TCP socket' }),
    },
    {
      target: 'ib_send_lat of 64 B: median relative to rxe in the same guest',
      most: 1,
      judge: ({ guest }) => ping(guest, { contender: 'rxe' }),
    },
    {
      target: 'ib_send_lat -e of 64 B: µs more in one direction than UDP sockets in C, asleep',
      most: 20,
      judge: ({ host }) => {
        const [ours, udp] = [{ kind: 'beside' as const, ...LIBRARY }, { contender: 'C, bare udp' }].map((wanted) =>
          figure(select(host, { ...wanted, size: 64, waiting: 'sleep' })[0], medianUs),
        );
        return ours === undefined || udp === undefined ? undefined : { value: (ours - udp) / 2 };
      },
    },
    ...SIZES.flatMap((size) => [
      {
        target: `ib_write_bw of ${bytes(size)}, MTU 9000, relative to the bare udp link with GSO`,
        least: 0.7,
        judge: ({ host }: ProgramsData) =>
          over(write(host, LIBRARY, size), select(host, { contender: 'C, bare udp, GSO', size })[0]),
      },
      {
        target: `ib_write_bw of ${bytes(size)}, MTU 9000, relative to rxe in the same guest`,
        least: 2,
        judge: ({ guest }: ProgramsData) => over(write(guest, LIBRARY, size), write(guest, { contender: 'rxe' }, size)),
      },
    ]),
  ],
};

const LIBRARY = { contender: new Library().name };

const write = (rows: readonly Row[], wanted: { readonly contender: string }, size: number) =>
  select(rows, { ...wanted, operation: 'WRITE', size })[0];

function ping(rows: readonly Row[], beside: { readonly contender: string } | { readonly kind: 'ours' }) {
  const of = (wanted: object): Row | undefined => select(rows, { ...wanted, size: 64, waiting: 'spin' })[0];
  return quotient(of(LIBRARY), of(beside), medianUs) satisfies Finding | undefined;
}

function sheet(where: string, rows: readonly Row[]): Sheet {
  return {
    title: `Gbit/s of payload at MTU 9000, and µs of a round trip of 64 bytes at MTU 1500, ${where}`,
    head: ['', ...SIZES.flatMap((size) => [`WRITE ${bytes(size)}`, `SEND ${bytes(size)}`]), ...PINGS.flat()],
    rows: [...new Set(rows.map(({ contender }) => contender))].map((contender) => line(contender, rows)),
    notes: failures(rows),
  };
}

const PINGS = ['spin', 'sleep'].map((waiting) => ['median', 'p99'].map((each) => `${each}, ${waiting}`));

function line(contender: string, rows: readonly Row[]): string[] {
  const own = select(rows, { contender });
  const none = reason(own);
  if (none !== undefined) return [contender, `skipped: ${none}`];
  const cell = (row: Row | undefined, value: number | undefined) =>
    value === undefined ? (row === undefined ? '' : absent(row)) : digits(value);
  const streams = SIZES.flatMap((size) =>
    (['WRITE', 'SEND'] as const).map((operation) => {
      const row = select(own, { size, operation })[0];
      return cell(row, figure(row, gbps));
    }),
  );
  const pings = (['spin', 'sleep'] as const).flatMap((waiting) => {
    const row = select(own, { size: 64, waiting })[0];
    return [medianUs, p99Us].map((of) => cell(row, figure(row, of)));
  });
  return [contender, ...streams, ...pings];
}
