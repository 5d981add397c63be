/** What the demo does, and the bytes that it moves. */
import { createCipheriv, createHash } from 'node:crypto';

export type OperationKind = 'SEND' | 'RDMA_WRITE' | 'RDMA_READ' | 'ATOMIC_CMP_AND_SWP' | 'ATOMIC_FETCH_AND_ADD';

export interface Operation {
  readonly kind: OperationKind;
  readonly name: string;
  /** Bytes of each. */
  readonly size: number;
  readonly count: number;
  /** Posted and not yet completed at a time. */
  readonly inFlight: number;
}

const KiB = 2 ** 10;
const MiB = 2 ** 20;

const SIZES: readonly Omit<Operation, 'kind' | 'name'>[] = [
  { size: 64, count: 1000, inFlight: 1 },
  { size: 4 * KiB, count: 500, inFlight: 1 },
  { size: 64 * KiB, count: 100, inFlight: 1 },
];
/** Long ones one after another keep both ends busy at once. */
const BULK: Omit<Operation, 'kind' | 'name'> = { size: MiB, count: 64, inFlight: 8 };

const all = (kind: OperationKind, name: string, sizes: readonly Omit<Operation, 'kind' | 'name'>[]) =>
  sizes.map((size): Operation => ({ kind, name, ...size }));

export const OPERATIONS: readonly Operation[] = [
  ...all('SEND', 'SEND ping-pong', SIZES),
  ...all('RDMA_WRITE', 'RDMA WRITE', [...SIZES, BULK]),
  ...all('RDMA_READ', 'RDMA READ', [...SIZES, BULK]),
  ...all('ATOMIC_CMP_AND_SWP', 'compare and swap', [{ size: 8, count: 500, inFlight: 1 }]),
  ...all('ATOMIC_FETCH_AND_ADD', 'fetch and add', [{ size: 8, count: 500, inFlight: 1 }]),
];

/** Every repetition has memory of its own at both ends, so that at the end each byte can be looked at. */
export const REGION_BYTES = Math.max(...OPERATIONS.map(({ size, count }) => size * count));

/** The bytes of an operation, the same at both ends without having been sent: a key stream of the operation's name. */
export function patternOf({ kind, size, count }: Operation): Buffer {
  const key = createHash('sha256').update(`${kind} ${size} ${count}`).digest();
  return createCipheriv('aes-256-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(size * count));
}

/** The 8 bytes that atomics of either kind work on, as they go. */
export class AtomicPlan {
  readonly #pattern: Buffer;

  constructor(readonly operation: Operation) {
    this.#pattern = patternOf(operation);
  }

  /** Before the first. */
  get initial(): bigint {
    return 0x0123_4567_89ab_cdefn;
  }

  /** Added by the i-th fetch and add, or put there by the i-th compare and swap. */
  operand(i: number): bigint {
    return this.#pattern.readBigUInt64LE(8 * i);
  }

  /** Every eighth compare is with a wrong value, and must change nothing. */
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

/** How bytes differ from what they should be; empty when they do not. */
export function difference(where: string, found: Buffer, expected: Buffer): string {
  if (found.equals(expected)) return '';
  const first = found.findIndex((byte, i) => byte !== expected[i]);
  const wrong = found.reduce((count, byte, i) => count + (byte === expected[i] ? 0 : 1), 0);
  return `${where}: ${wrong} of ${expected.length} bytes are wrong, the first at ${first}`;
}
