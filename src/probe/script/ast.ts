/**
 * The syntax tree of a script (`.roce`). The grammar (grammar.peggy) builds it; docs/scripts.md explains the language.
 */

/** A place in a script. */
export interface SourcePosition {
  /** The line, from 1. */
  readonly line: number;
  /** The column, from 1. */
  readonly column: number;
}

/** Units of a duration and their nanoseconds. */
export const UNITS = { ns: 1n, us: 1_000n, ms: 1_000_000n, s: 1_000_000_000n } as const;
/** The unit of a duration. */
export type Unit = keyof typeof UNITS;

/** Operators by precedence, weakest first. Comparisons give 1 or 0. */
export const OPERATORS = [
  ['==', '!=', '<=', '>=', '<', '>'],
  ['|'],
  ['^'],
  ['&'],
  ['<<', '>>'],
  ['+', '-'],
  ['*', '/', '%'],
] as const;
/** A binary operator. */
export type Operator = (typeof OPERATORS)[number][number];

/** An expression. `number` keeps its text, so that the formatter leaves the notation alone. */
export type Expression = SourcePosition &
  (
    | { readonly kind: 'number'; readonly text: string }
    | { readonly kind: 'duration'; readonly text: string; readonly unit: Unit }
    | { readonly kind: 'string'; readonly value: string }
    | { readonly kind: 'name'; readonly path: readonly string[] }
    | { readonly kind: 'call'; readonly name: string; readonly arguments: readonly Expression[] }
    | { readonly kind: 'unary'; readonly operator: '-' | '~'; readonly operand: Expression }
    | { readonly kind: 'binary'; readonly operator: Operator; readonly left: Expression; readonly right: Expression }
    | { readonly kind: 'group'; readonly inner: Expression }
  );

/** The value that a packet's field must have, or gets. */
export type FieldValue =
  | { readonly kind: 'flag' }
  | { readonly kind: 'is'; readonly value: Expression }
  | { readonly kind: 'not'; readonly value: Expression }
  | { readonly kind: 'range'; readonly low: Expression; readonly high: Expression }
  /** The field's value becomes a variable. */
  | { readonly kind: 'bind'; readonly name: string };

/** A field of a packet: `psn=first+1`, `ackreq`, `!ackreq`, `ip.ttl!=64`, `credits=1..30`, `msn=>m`. */
export interface Field extends SourcePosition {
  readonly name: string;
  readonly value: FieldValue;
  /** For a flag: the flag is not set. */
  readonly negated?: boolean;
}

/** A packet to send, or a pattern of received packets. */
export interface PacketSpec extends SourcePosition {
  /** The operation, as in `SEND_ONLY` or `UD.SEND_ONLY`; `*` matches every packet. */
  readonly operation: string;
  readonly fields: readonly Field[];
}

/** When a statement starts: after the statement before it (`+10us`), or since the start of the script (`@5ms`). */
export interface Time extends SourcePosition {
  readonly from: 'previous' | 'start';
  readonly duration: Expression;
}

/** A statement without its time and comment. */
export type Statement = SourcePosition &
  (
    | { readonly kind: 'title'; readonly text: string }
    | { readonly kind: 'clause'; readonly text: string }
    | { readonly kind: 'needs'; readonly what: readonly string[] }
    | { readonly kind: 'let' | 'set'; readonly name: string; readonly value: Expression }
    | { readonly kind: 'send'; readonly packet: PacketSpec; readonly as?: string }
    | {
        readonly kind: 'expect';
        /** Alternatives; the first that matches counts. */
        readonly packets: readonly PacketSpec[];
        /** Limits of the time since the statement before. */
        readonly after?: Expression;
        readonly within?: Expression;
        readonly as?: string;
      }
    | { readonly kind: 'none'; readonly packets: readonly PacketSpec[]; readonly duration: Expression }
    | { readonly kind: 'ignore'; readonly packets: readonly PacketSpec[] }
    | { readonly kind: 'wait'; readonly duration: Expression }
    | { readonly kind: 'repeat'; readonly count: Expression; readonly as?: string; readonly body: readonly Line[] }
    | { readonly kind: 'check'; readonly condition: Expression; readonly text?: string }
    | { readonly kind: 'measure'; readonly from: string; readonly to: string; readonly as: string }
  );

/** A line of a script: a statement, a comment, both, or neither. */
export interface Line {
  readonly time?: Time;
  readonly statement?: Statement;
  /** The text after `#`, without it. */
  readonly comment?: string;
}

/** The syntax tree of a script. */
export interface Script {
  /** The name in messages, usually a path. */
  readonly name: string;
  /** @internal */
  readonly lines: readonly Line[];
}

/** The effect of a fault on a packet. */
export type FaultAction =
  | { readonly kind: 'drop' | 'duplicate' | 'corrupt' | 'mark' }
  | { readonly kind: 'delay'; readonly duration: Expression }
  /** `count` later frames overtake the packet. */
  | { readonly kind: 'reorder'; readonly count: number }
  | { readonly kind: 'rewrite'; readonly fields: readonly Field[] };

/** A rule of faults: which packets of the card's own traffic, and what happens to them. */
export interface FaultRule {
  readonly action: FaultAction;
  /**
   * Numbers of the matching packets, from 1: `first`, then every `step`-th up to `last`; of these, each with the
   * probability `chance`.
   */
  readonly which: { readonly first: number; readonly last: number; readonly step: number; readonly chance: number };
  readonly packet: PacketSpec;
  /** The destination: its number in the order of the first packets of the direction, or its queue pair number. */
  readonly queue: { readonly kind: 'nth' | 'qpn'; readonly value: number } | null;
  readonly direction: 'sent' | 'received';
  /** Number of transmissions of a packet that are hit: 1 is the first one only. */
  readonly times: number;
}
