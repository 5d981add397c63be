/** The rows of the security bench: attacks, their rates, and what must hold. */
import type { AttackName } from './attacker.js';

/** A figure with its bound. */
export interface Bound {
  readonly figure: FigureName;
  readonly atMost?: number;
  readonly atLeast?: number;
}

/** The figures of a row: see `FIGURES`. */
export type FigureName = 'lagMax' | 'connectMax' | 'memory' | 'flow' | 'back' | 'close' | 'kept';

/** The figures, with their units. */
export const FIGURES: Readonly<Record<FigureName, string>> = {
  lagMax: 'event loop lag at most, ms',
  connectMax: 'honest connect at most, ms',
  memory: 'memory more, MiB',
  flow: 'flow, of that before',
  back: 'service back after, ms',
  close: 'connections closed after, ms',
  kept: 'memory still in use afterwards, MiB',
};

/** An attack at a rate. */
export interface Row {
  readonly attack: AttackName;
  /** Frames a second; of a connected peer connections, messages or requests a second. 0: as many as it can. */
  readonly rate: number;
  readonly bounds: readonly Bound[];
  /** The attacker is a program on the target's host. Default false. */
  readonly isLocal?: boolean;
}

const CALM: readonly Bound[] = [
  { figure: 'lagMax', atMost: 50 },
  { figure: 'connectMax', atMost: 1000 },
  { figure: 'memory', atMost: 16 },
  { figure: 'flow', atLeast: 0.5 },
  { figure: 'back', atMost: 1000 },
  { figure: 'close', atMost: 5000 },
  { figure: 'kept', atMost: 16 },
];
/** Forged packets of the flow's own connection, or peers that take their own share: at least a tenth of it stays. */
const SHARED: readonly Bound[] = [{ figure: 'flow', atLeast: 0.1 }, ...CALM.filter(({ figure }) => figure !== 'flow')];

export const ROWS: readonly Row[] = [
  { attack: 'REQ, no listener', rate: 100_000, bounds: CALM },
  { attack: 'REQ, listener', rate: 100_000, bounds: CALM },
  { attack: 'REQ, off-link sources', rate: 10_000, bounds: CALM },
  { attack: 'REQ, absent neighbours', rate: 200, bounds: CALM },
  { attack: 'REQ, absent neighbours', rate: 100_000, bounds: CALM },
  { attack: 'REQ, absent neighbours, listener', rate: 200, bounds: CALM },
  { attack: 'REP', rate: 100_000, bounds: CALM },
  { attack: 'DREQ', rate: 100_000, bounds: CALM },
  { attack: 'SIDR_REQ', rate: 100_000, bounds: CALM },
  { attack: 'REJ', rate: 100_000, bounds: CALM },
  { attack: 'RTU', rate: 100_000, bounds: CALM },
  { attack: 'CNP', rate: 5_000, bounds: SHARED },
  { attack: 'NAK', rate: 60_000, bounds: SHARED },
  { attack: 'RNR', rate: 5_000, bounds: SHARED },
  { attack: 'half-open connections', rate: 50, bounds: CALM },
  { attack: 'silent peers', rate: 50, bounds: CALM },
  { attack: 'connect and disconnect', rate: 1000, bounds: CALM },
  { attack: 'RTU, own connection', rate: 50_000, bounds: CALM },
  { attack: 'READ', rate: 0, bounds: SHARED },
  { attack: 'READ, repeated', rate: 2000, bounds: SHARED },
  { attack: 'atomics', rate: 0, bounds: SHARED },
  { attack: 'atomic, repeated', rate: 50_000, bounds: SHARED },
  { attack: 'never-reading peers', rate: 0, bounds: CALM },
  { attack: 'RNR without end', rate: 0, bounds: SHARED },
  { attack: 'broker, silent connections', rate: 5000, bounds: CALM, isLocal: true },
  { attack: 'broker, wrong messages', rate: 5000, bounds: CALM, isLocal: true },
  { attack: 'broker, joins', rate: 200, bounds: CALM, isLocal: true },
  { attack: 'broker, listeners', rate: 500, bounds: CALM, isLocal: true },
];
