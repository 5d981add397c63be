/** The simulated application's work requests, drawn at random, legal ones only. */
import type { Random } from '../kit/random.js';

export type Kind =
  | 'SEND'
  | 'SEND_WITH_IMM'
  | 'SEND_WITH_INV'
  | 'RDMA_WRITE'
  | 'RDMA_WRITE_WITH_IMM'
  | 'RDMA_READ'
  | 'ATOMIC_CMP_AND_SWP'
  | 'ATOMIC_FETCH_AND_ADD'
  | 'ATOMIC_WRITE'
  | 'FLUSH'
  | 'LOCAL_INV'
  | 'BIND_MW';

export interface Op {
  readonly index: number;
  readonly kind: Kind;
  readonly length: number;
  /** Offset of the payload in the sender's source zone. */
  readonly source: number;
  readonly isInline: boolean;
  isSignaled: boolean;
  readonly isSolicited: boolean;
  readonly fence: boolean;
  readonly imm: number;
}

/** Opcode of the completion. */
export const WC_OPCODES: Readonly<Record<string, string>> = {
  SEND: 'SEND',
  SEND_WITH_IMM: 'SEND',
  SEND_WITH_INV: 'SEND',
  RDMA_WRITE: 'RDMA_WRITE',
  RDMA_WRITE_WITH_IMM: 'RDMA_WRITE',
  RDMA_READ: 'RDMA_READ',
  ATOMIC_CMP_AND_SWP: 'COMP_SWAP',
  ATOMIC_FETCH_AND_ADD: 'FETCH_ADD',
  ATOMIC_WRITE: 'ATOMIC_WRITE',
  FLUSH: 'FLUSH',
  LOCAL_INV: 'LOCAL_INV',
  BIND_MW: 'BIND_MW',
};

/** A kind that is listed n times is drawn n times as often. */
const KINDS: readonly Kind[] = [
  'SEND',
  'SEND',
  'SEND',
  'SEND_WITH_IMM',
  'SEND_WITH_IMM',
  'SEND_WITH_INV',
  'RDMA_WRITE',
  'RDMA_WRITE',
  'RDMA_WRITE',
  'RDMA_WRITE_WITH_IMM',
  'RDMA_READ',
  'RDMA_READ',
  'RDMA_READ',
  'ATOMIC_CMP_AND_SWP',
  'ATOMIC_FETCH_AND_ADD',
  'ATOMIC_FETCH_AND_ADD',
  'ATOMIC_WRITE',
  'FLUSH',
  'LOCAL_INV',
  'BIND_MW',
  'BIND_MW',
];
export const MAX_INLINE = 220;
const SEND_FLAGS_ANYWHERE = 0.1;

/** Mostly small, up to 200 KiB; more often near multiples of the MTU. */
function drawLength(random: Random, mtu: number): number {
  const dice = random.fraction();
  if (dice < 0.08) return 0;
  if (dice < 0.45) return random.between(1, 512);
  if (dice < 0.65) return Math.max(0, mtu * random.between(1, 6) + random.between(-2, 3));
  if (dice < 0.85) return random.below(8 << 10);
  if (dice < 0.97) return random.below(40 << 10);
  return random.below(200 << 10);
}

export function isAtomic(kind: Kind): boolean {
  return kind === 'ATOMIC_CMP_AND_SWP' || kind === 'ATOMIC_FETCH_AND_ADD';
}
/** Executed by the card without a packet. */
export function isLocal(kind: Kind): boolean {
  return kind === 'LOCAL_INV' || kind === 'BIND_MW';
}
/** Uses a receive of the peer. */
export function takesReceive(kind: Kind): boolean {
  return kind.startsWith('SEND') || kind === 'RDMA_WRITE_WITH_IMM';
}
export function isWrite(kind: Kind): boolean {
  return kind === 'RDMA_WRITE' || kind === 'RDMA_WRITE_WITH_IMM' || kind === 'ATOMIC_WRITE';
}

export function drawOps(random: Random, count: number, mtu: number, sourceBytes: number): Op[] {
  let unsignaled = 0;
  return Array.from({ length: count }, (_, index) => {
    const kind = random.pick(KINDS);
    const length = isAtomic(kind) || kind === 'ATOMIC_WRITE' ? 8 : isLocal(kind) ? 0 : drawLength(random, mtu);
    const carries = takesReceive(kind) || isWrite(kind);
    // completions alone free the room for results: not too many requests without one, and none that need much room
    const isSignaled = unsignaled === 7 || length > 20_000 || index === count - 1 || random.chance(0.6);
    unsignaled = isSignaled ? 0 : unsignaled + 1;
    return {
      index,
      kind,
      length,
      source: random.below(sourceBytes - length + 1),
      isInline: carries && length <= MAX_INLINE && random.chance(0.3),
      isSignaled,
      isSolicited: random.chance(0.2),
      fence: random.chance(SEND_FLAGS_ANYWHERE),
      imm: random.u32(),
    };
  });
}
