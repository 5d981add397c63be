/** The operations of the demo, and the bytes that they move. */
import { createCipheriv, createHash } from 'node:crypto';

export type OperationKind = 'SEND' | 'RDMA_WRITE' | 'RDMA_READ' | 'ATOMIC_CMP_AND_SWP' | 'ATOMIC_FETCH_AND_ADD';

export interface Operation {
  readonly kind: OperationKind;
  readonly name: string;
  /** Bytes of each repetition. */
  readonly size: number;
  /** Repetitions before the bytes are verified. */
  readonly count: number;
  /** Repetitions in flight at a time. */
  readonly inFlight: number;
}

/** An operation that is done in several rounds, as far as time allows. */
export interface Task extends Operation {
  readonly rounds: number;
}

type Amount = Omit<Task, 'kind' | 'name'>;

const KiB = 2 ** 10;
const MiB = 2 ** 20;

const ONE_BY_ONE: readonly Amount[] = [
  { size: 64, count: 100, rounds: 10, inFlight: 1 },
  { size: 4 * KiB, count: 100, rounds: 10, inFlight: 1 },
  { size: 64 * KiB, count: 20, rounds: 10, inFlight: 1 },
];
const BULK: Amount = { size: MiB, count: 16, rounds: 4, inFlight: 8 };
const ATOMICS: Amount = { size: 8, count: 100, rounds: 10, inFlight: 1 };

const each = (kind: OperationKind, name: string, ...amounts: readonly Amount[]) =>
  amounts.map((amount): Task => ({ kind, name, ...amount }));

export const TASKS: readonly Task[] = [
  ...each('SEND', 'SEND ping-pong', ...ONE_BY_ONE),
  ...each('RDMA_WRITE', 'RDMA WRITE', ...ONE_BY_ONE, BULK),
  ...each('RDMA_READ', 'RDMA READ', ...ONE_BY_ONE, BULK),
  ...each('ATOMIC_CMP_AND_SWP', 'compare and swap', ATOMICS),
  ...each('ATOMIC_FETCH_AND_ADD', 'fetch and add', ATOMICS),
];

/** Each repetition has its own memory at both ends, so that all bytes can be verified after the last one. */
export const REGION_BYTES = Math.max(...TASKS.map(({ size, count }) => size * count));

/** The bytes of an operation. Both ends derive them from its kind and size, as a key stream. */
export function patternOf({ kind, size, count }: Operation): Buffer {
  const key = createHash('sha256').update(`${kind} ${size}`).digest();
  return createCipheriv('aes-256-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(size * count));
}

/** The expected values of the 8 bytes that the atomics change. */
export class AtomicPlan {
  readonly #pattern: Buffer;

  constructor(readonly operation: Operation) {
    this.#pattern = patternOf(operation);
  }

  /** The value before the first atomic. */
  get initial(): bigint {
    return 0x0123_4567_89ab_cdefn;
  }

  /** The operand of the ith fetch and add, or of the ith compare and swap. */
  operand(i: number): bigint {
    return this.#pattern.readBigUInt64LE(8 * i);
  }

  /** Every eighth compare has a wrong value, and must change nothing. */
  isMiss(i: number): boolean {
    return this.operation.kind === 'ATOMIC_CMP_AND_SWP' && i % 8 === 7;
  }

  after(value: bigint, i: number): bigint {
    if (this.isMiss(i)) return value;
    return this.operation.kind === 'ATOMIC_CMP_AND_SWP' ? this.operand(i) : BigInt.asUintN(64, value + this.operand(i));
  }

  get final(): bigint {
    let value = this.initial;
    for (let i = 0; i < this.operation.count; i++) value = this.after(value, i);
    return value;
  }
}

export const isAtomic = ({ kind }: Operation): boolean => kind.startsWith('ATOMIC');

/** Describes how bytes differ from the expected ones; empty when they do not. */
export function difference(where: string, found: Buffer, expected: Buffer): string {
  if (found.equals(expected)) return '';
  const first = found.findIndex((byte, i) => byte !== expected[i]);
  const wrong = found.reduce((count, byte, i) => count + (byte === expected[i] ? 0 : 1), 0);
  return `${where}: ${wrong} of ${expected.length} bytes are wrong, the first at ${first}`;
}
