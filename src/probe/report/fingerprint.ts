/**
 * The probable maker of a peer: a table of the traits of each known adapter in its packets and in the verdicts of
 * checks, and the known deviations of the checks themselves. The facts are from captures of adapters and from
 * publications; see docs/probe-report.md.
 */
import type { CheckResult } from '../checks/result.js';
import { decodeRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { CNP, OPCODES, Op, UC } from '../packet/opcodes.js';
import { flowFigures } from './figures.js';
import type { ProbeRun } from './run.js';

/** An adapter that the table knows. */
export type Adapter = 'rxe' | 'mlx5' | 'irdma' | 'hinic' | 'wasm-roce';

/** The names of adapters for people. */
export const ADAPTERS: Readonly<Record<Adapter, string>> = {
  rxe: 'Linux rxe',
  mlx5: 'ConnectX (mlx5)',
  irdma: 'Intel E810 or X722 (irdma)',
  hinic: 'Huawei Hi1822',
  'wasm-roce': 'wasm-roce',
};

/** An adapter that the peer may be. */
export interface Candidate {
  /** The adapter. */
  readonly adapter: Adapter;
  /** The adapter's name for people. */
  readonly title: string;
  /** The weights of what speaks for it, less those of what speaks against it. */
  readonly score: number;
  /** Traits that speak for it. */
  readonly for: readonly string[];
  /** Traits that speak against it. */
  readonly against: readonly string[];
}

/** The probable maker of a peer. */
export interface Fingerprint {
  /** The first of the candidates, if much speaks for it, and more than for the others. */
  readonly probably?: Adapter;
  /** Adapters for or against which something speaks, the likeliest first. */
  readonly candidates: readonly Candidate[];
}

/** A packet of the peer. */
interface Received {
  readonly frame: Decoded;
  /** Nanoseconds of the port's clock. */
  readonly at: number;
  /** Queue pair numbers of our end, to which it went, and of the peer's, if that is known. */
  readonly ours: number;
  readonly theirs: number | undefined;
}

/** The traits that the table looks at. */
interface Seen {
  readonly run: ProbeRun;
  readonly packets: readonly Received[];
  /** Packets other than CNPs, datagrams and those with a wrong ICRC. */
  readonly connected: readonly Received[];
  readonly cnps: readonly Received[];
  /** Messages of rdma_cm. */
  readonly cm: readonly Received[];
}

/** The adapters that a trait's value speaks for and against. */
type Sides = readonly [readonly Adapter[], readonly Adapter[]];

/** Something in which adapters differ. That a peer does what the specification demands speaks for no adapter. */
interface Trait {
  readonly name: string;
  /** Its weight: a habit of adapters on the wire counts more than that of one version of them. */
  readonly weight: number;
  /** Returns the value that the peer shows; undefined: it shows none, or none that is always the same. */
  look(seen: Seen): string | undefined;
  readonly values: Readonly<Record<string, Sides>>;
}

/** Returns the one value that all packets have. */
function common(packets: readonly Received[], value: (packet: Received) => string): string | undefined {
  const found = new Set(packets.map(value));
  return found.size === 1 ? [...found][0] : undefined;
}

const isAnswer = ({ frame: { bth } }: Received) => bth.opcode === Op.ACKNOWLEDGE;
const isRequest = ({ frame: { bth } }: Received) =>
  bth.opcode < Op.RDMA_READ_RESPONSE_FIRST || (bth.opcode > Op.ATOMIC_ACKNOWLEDGE && bth.opcode < UC);
const ecn = ({ frame: { ip } }: Received) =>
  ((ip.version === 4 ? ip.tos : ip.trafficClass) & 3) === 0 ? 'not ECN-capable' : 'ECN-capable';
const isIdVisible = ({ run }: Seen) => run.links.every(({ kind }) => kind !== 'udp');

/** Returns the UDP source port that Linux takes for a pair of queue pairs without flow label (rdma_get_udp_sport). */
function linuxPort(theirs: number, ours: number): number {
  let mixed = BigInt(theirs) * BigInt(ours);
  mixed ^= mixed >> 20n;
  mixed ^= mixed >> 40n;
  const label = Number(mixed & 0xfffffn);
  return ((label & 0x3fff) ^ (label >>> 14)) | 0xc000;
}

/** The verdicts of a check in words, for a trait. */
const verdictOf =
  (name: string, words: Partial<Record<CheckResult['verdict'], string>>) =>
  ({ run }: Seen): string | undefined => {
    const verdict = run.results.find((result) => result.name === name)?.verdict;
    return verdict && words[verdict];
  };

const TRAITS: readonly Trait[] = [
  {
    name: 'MigReq',
    weight: 3,
    look: ({ connected }) => common(connected, ({ frame }) => (frame.bth.migReq ? '1' : '0')),
    values: {
      '0': [['rxe'], ['mlx5', 'hinic', 'wasm-roce']],
      '1': [['mlx5', 'hinic', 'wasm-roce'], ['rxe']],
    },
  },
  {
    name: 'ACKs',
    weight: 2,
    look: ({ connected }) => common(connected.filter(isAnswer), ecn),
    values: {
      // our card's are, unless its congestion control is off
      'ECN-capable': [['mlx5', 'hinic', 'wasm-roce'], ['rxe']],
      'not ECN-capable': [
        ['rxe', 'wasm-roce'],
        ['mlx5', 'hinic'],
      ],
    },
  },
  {
    name: 'CM messages',
    weight: 2,
    look: ({ cm }) => common(cm, ecn),
    values: {
      'ECN-capable': [['mlx5'], ['rxe', 'wasm-roce']],
      'not ECN-capable': [['rxe', 'wasm-roce'], ['mlx5']],
    },
  },
  {
    name: 'UDP source port of CM messages',
    weight: 2,
    look: ({ cm }) => common(cm, ({ frame }) => `0x${frame.udp.sport.toString(16)}`),
    values: { '0xd872': [['rxe'], []], '0xc000': [['wasm-roce'], ['rxe']] },
  },
  {
    name: 'UDP source port',
    weight: 2,
    look: ({ connected }) =>
      common(
        connected.filter(({ theirs }) => theirs !== undefined),
        ({ frame: { udp }, theirs, ours }) => {
          if (udp.sport === theirs) return 'its own queue pair number';
          return udp.sport === linuxPort(theirs as number, ours) ? 'by the rule of Linux' : 'other';
        },
      ),
    values: {
      'its own queue pair number': [['hinic'], ['rxe', 'mlx5', 'irdma', 'wasm-roce']],
      'by the rule of Linux': [['rxe', 'mlx5', 'irdma', 'wasm-roce'], ['hinic']],
    },
  },
  {
    name: 'IPv4 identification',
    weight: 1,
    look: (seen) => {
      const packets = seen.packets.filter(({ frame }) => frame.ip.version === 4);
      if (!isIdVisible(seen) || packets.length < 2) return undefined;
      return packets.every(({ frame: { ip } }) => ip.version === 4 && ip.id === 0) ? 'always 0' : 'not 0';
    },
    values: {
      'always 0': [['hinic'], ['rxe', 'mlx5']],
      'not 0': [['rxe', 'mlx5'], ['hinic']],
    },
  },
  {
    name: 'credits in ACKs',
    weight: 1,
    look: ({ connected }) => {
      const syndromes = connected.filter(isAnswer).map(({ frame }) => frame.aeth?.syndrome ?? 0xff);
      const codes = syndromes.filter((syndrome) => syndrome >>> 5 === 0);
      if (codes.length === 0) return undefined;
      return codes.every((code) => code === 31) ? 'none (code 31)' : 'receives that are posted';
    },
    values: {
      // our card's tell none unless both ends agree on it
      'none (code 31)': [
        ['rxe', 'wasm-roce'],
        ['mlx5', 'hinic'],
      ],
      'receives that are posted': [['mlx5', 'hinic'], ['rxe']],
    },
  },
  {
    name: 'reserved bits of the BTH in requests',
    weight: 2,
    look: ({ connected }) =>
      common(connected.filter(isRequest), ({ frame }) => `0x${frame.bth.reserved6.toString(16)}`),
    values: { '0x10': [['hinic'], ['rxe', 'mlx5', 'wasm-roce']], '0x0': [[], ['hinic']] },
  },
  {
    name: 'UDP source port of CNPs',
    weight: 1,
    look: ({ cnps }) => common(cnps, ({ frame }) => (frame.udp.sport === 0 ? '0' : 'not 0')),
    values: { '0': [['mlx5'], ['wasm-roce']], 'not 0': [['wasm-roce'], []] },
  },
  {
    name: 'CNPs',
    weight: 2,
    look: (seen) => {
      const didRun = verdictOf('cnp', { pass: 'yes', deviates: 'yes', fails: 'yes' })(seen);
      return didRun && (seen.cnps.length === 0 ? 'none for marked packets' : 'sent');
    },
    values: {
      sent: [[], ['rxe']],
      'none for marked packets': [['rxe'], ['mlx5', 'wasm-roce']],
    },
  },
  {
    name: 'time between retransmissions',
    weight: 2,
    look: ({ connected }) =>
      intervals(connected).some((each) => each > 500e6 && each < 575e6) ? 'about 537 ms' : undefined,
    values: { 'about 537 ms': [['mlx5'], []] },
  },
  {
    name: 'a reserved opcode',
    weight: 1,
    look: verdictOf('reserved-opcode', { pass: 'refused' }),
    values: { refused: [[], ['rxe']] },
  },
  {
    name: 'a SEND that is too long',
    weight: 1,
    look: verdictOf('long-send', { pass: 'NAK 0x61' }),
    values: { 'NAK 0x61': [[], ['rxe']] },
  },
  {
    name: 'the packets after an RNR NAK',
    weight: 1,
    look: verdictOf('rnr-drops-the-rest', { pass: 'dropped' }),
    values: { dropped: [[], ['rxe']] },
  },
  {
    name: 'a SEND that invalidates a bad key',
    weight: 2,
    look: verdictOf('invalidate-bad-key', { pass: 'no NAK' }),
    values: { 'no NAK': [[], ['irdma']] },
  },
  {
    name: 'ICRC of FLUSH requests',
    weight: 2,
    look: ({ packets }) =>
      common(
        packets.filter(({ frame }) => frame.bth.opcode === Op.FLUSH),
        ({ frame }) => (frame.icrcOk ? 'right' : 'wrong'),
      ),
    values: { right: [[], ['rxe']], wrong: [['rxe'], ['wasm-roce']] },
  },
];

/** The names of adapters in known deviations. Those that do not name our card speak against it. */
const NAMES: Readonly<Partial<Record<Adapter, RegExp>>> = {
  rxe: /\brxe\b/,
  mlx5: /\bmlx5\b|\bCX\d|\bConnectX/,
  irdma: /\birdma\b|\bE810\b|\bX722\b/,
  hinic: /\bHi1822\b/,
  'wasm-roce': /\bwasm-roce\b/,
};
const DEVIATION_WEIGHT = 1;

/** Something that a peer shows. */
interface Shown {
  readonly weight: number;
  readonly text: string;
  readonly sides: Sides;
}

/** Returns the known deviations of a peer, which speak for the adapters that they are known of. */
function deviations({ results }: ProbeRun): Shown[] {
  return results.flatMap(({ name, deviation }) => {
    if (deviation === undefined) return [];
    const known = (Object.keys(NAMES) as Adapter[]).filter((adapter) => NAMES[adapter]?.test(deviation.of));
    const against: readonly Adapter[] = known.includes('wasm-roce') ? [] : ['wasm-roce'];
    return [{ weight: DEVIATION_WEIGHT, text: `${name}: ${deviation.what}`, sides: [known, against] }];
  });
}

/** Points that an adapter needs to be named, and by which it has to lead. */
const [LEAST_SCORE, LEAST_LEAD] = [4, 2];

/** Returns what the peer of a run probably is, with what speaks for and against each adapter. */
export function fingerprint(run: ProbeRun): Fingerprint {
  const seen = look(run);
  const traits = TRAITS.flatMap((trait): Shown[] => {
    const value = trait.look(seen);
    const sides = value === undefined ? undefined : trait.values[value];
    return sides === undefined ? [] : [{ weight: trait.weight, text: `${trait.name}: ${value}`, sides }];
  });
  const found = [...traits, ...deviations(run)];
  const candidates = (Object.keys(ADAPTERS) as Adapter[])
    .map((adapter): Candidate => {
      const [pro, contra] = ([0, 1] as const).map((side) => found.filter(({ sides }) => sides[side].includes(adapter)));
      const sum = (side: readonly Shown[]) => side.reduce((total, { weight }) => total + weight, 0);
      const texts = (side: readonly Shown[]) => side.map(({ text }) => text);
      return {
        ...{ adapter, title: ADAPTERS[adapter], score: sum(pro ?? []) - sum(contra ?? []) },
        ...{ for: texts(pro ?? []), against: texts(contra ?? []) },
      };
    })
    .filter((candidate) => candidate.for.length + candidate.against.length > 0)
    .sort((a, b) => b.score - a.score);
  const [best, second] = candidates;
  const isClear = best !== undefined && best.score >= LEAST_SCORE && best.score - (second?.score ?? 0) >= LEAST_LEAD;
  return { ...(isClear && { probably: best.adapter }), candidates };
}

function look(run: ProbeRun): Seen {
  const packets = run.results.flatMap(({ evidence }) => {
    const peers = new Map(flowFigures(evidence).map(({ src_qp, dest_qp }) => [src_qp, dest_qp]));
    return evidence.flatMap(({ direction, frame: bytes, at }): Received[] => {
      const frame = direction === 'in' ? decodeRoce(bytes) : undefined;
      if (frame === undefined) return [];
      const ours = frame.bth.destQp;
      return [{ frame, at, ours, theirs: peers.get(ours) }];
    });
  });
  const intact = packets.filter(({ frame }) => frame.icrcOk);
  return {
    ...{ run, packets },
    connected: intact.filter(({ frame: { bth } }) => bth.opcode < UC && OPCODES.has(bth.opcode)),
    cnps: intact.filter(({ frame }) => frame.bth.opcode === CNP),
    cm: intact.filter(({ ours }) => ours === 1),
  };
}

/** Returns the times between the same request of the peer and its repetition, in nanoseconds. */
function intervals(packets: readonly Received[]): number[] {
  const last = new Map<string, number>();
  return packets.filter(isRequest).flatMap(({ frame: { bth }, ours, at }) => {
    const key = `${ours} ${bth.psn} ${bth.opcode}`;
    const before = last.get(key);
    last.set(key, at);
    return before === undefined ? [] : [at - before];
  });
}

/** Returns a fingerprint as text: what the peer probably is, then what speaks for and against each candidate. */
export function fingerprintText({ probably, candidates }: Fingerprint): string {
  const head =
    probably === undefined ? 'What the peer is cannot be told.' : `The peer is probably ${ADAPTERS[probably]}.`;
  const lines = candidates.flatMap(({ title, score, ...sides }) => [
    `${title} (${score > 0 ? '+' : ''}${score})`,
    ...sides.for.map((text) => `  for: ${text}`),
    ...sides.against.map((text) => `  against: ${text}`),
  ]);
  return [head, ...lines].join('\n');
}
