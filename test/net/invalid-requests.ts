/** Requests that break a rule, and how each must end (the table of IBTA 9.9.3). */
import type { Random } from '../kit/random.js';
import type { Piece, Region } from '../kit/rig.js';
import type { Violation } from './model.js';
import type { Kind } from './op.js';
import type { Side } from './side.js';

const LOCAL_WRITE = 1;
const REMOTE_ACCESS = 'REM_ACCESS_ERR';
const INVALID_REQUEST = 'REM_INV_REQ_ERR';
const ONE_SIDED: readonly Kind[] = ['RDMA_WRITE', 'RDMA_READ', 'ATOMIC_CMP_AND_SWP', 'ATOMIC_FETCH_AND_ADD'];
const SENDS: readonly Kind[] = ['SEND', 'SEND_WITH_IMM'];

type Crime = (random: Random) => Omit<Violation, 'index'>;
type Remote = { va: bigint; rkey: number };

const isAtomic = (kind: Kind): boolean => kind.startsWith('ATOMIC');

/** A READ, WRITE or atomic of a range that the peer does not allow. */
function trespass(
  random: Random,
  kinds: readonly Kind[],
  where: (to: Side, length: number) => Remote,
): Omit<Violation, 'index'> {
  const kind = random.pick(kinds);
  const length = isAtomic(kind) ? 8 : random.between(1, 20_000);
  return {
    kind,
    length,
    status: REMOTE_ACCESS,
    send: (request, { to }) => ({ ...request, remote: where(to, length) }),
  };
}

/** A region over the start of the peer's arena, with its own keys. */
function regionOf(to: Side, access: number, pd = to.rig.pd): Region {
  return to.rig.regionAt(to.arena.ptr, 64 << 10, access, undefined, pd);
}

const withKey = (pieces: readonly Piece[], lkey: number): Piece[] => pieces.map((piece) => ({ ...piece, lkey }));

export const CRIMES: Readonly<Record<string, Crime>> = {
  'a key that does not exist': (random) =>
    trespass(random, ONE_SIDED, (to) => ({ va: to.arena.iova, rkey: (to.arena.rkey ^ 0x12345600) >>> 0 })),
  'a key with another tag': (random) =>
    trespass(random, ONE_SIDED, (to) => ({ va: to.arena.iova, rkey: (to.arena.rkey ^ random.between(1, 256)) >>> 0 })),
  'the local key of the region': (random) =>
    trespass(random, ONE_SIDED, (to) => ({ va: to.arena.iova, rkey: to.arena.lkey })),
  'the end of the region': (random) =>
    trespass(random, ONE_SIDED, (to, length) => ({
      va: (to.arena.iova + BigInt(to.size - length) + 8n) & ~7n,
      rkey: to.arena.rkey,
    })),
  'the start of the region': (random) =>
    trespass(random, ONE_SIDED, (to) => ({ va: BigInt.asUintN(64, to.arena.iova - 8n), rkey: to.arena.rkey })),
  'the end of all addresses': (random) =>
    trespass(random, ONE_SIDED, (to) => ({ va: 2n ** 64n - 8n, rkey: to.arena.rkey })),
  'a region without remote rights': (random) =>
    trespass(random, ONE_SIDED, (to) => {
      const region = regionOf(to, LOCAL_WRITE);
      return { va: region.iova, rkey: region.rkey };
    }),
  "another domain's region": (random) =>
    trespass(random, ONE_SIDED, (to) => {
      const region = regionOf(to, 15, to.rig.x.pdAlloc());
      return { va: region.iova, rkey: region.rkey };
    }),
  'a region that is gone': (random) =>
    trespass(random, ONE_SIDED, (to) => {
      const region = regionOf(to, 15);
      to.rig.x.mrDereg(region.mr);
      return { va: region.iova, rkey: region.rkey };
    }),
  'a misaligned atomic': (random) => ({
    ...trespass(random, ['ATOMIC_CMP_AND_SWP', 'ATOMIC_FETCH_AND_ADD'], (to) => ({
      va: to.arena.iova + BigInt(random.between(1, 8)),
      rkey: to.arena.rkey,
    })),
    status: INVALID_REQUEST,
  }),
  'a SEND longer than its receive': (random) => {
    const length = random.between(1, 20_000);
    const short = random.below(length);
    return {
      kind: random.pick(SENDS),
      length,
      status: INVALID_REQUEST,
      received: 'LOC_LEN_ERR',
      receive: (pieces) =>
        short === 0 ? [] : [{ ...(pieces[0] as Piece), length: Math.min(short, pieces[0]?.length ?? 0) }],
    };
  },
  'a receive with a wrong key': (random) => ({
    kind: random.pick(SENDS),
    length: random.between(1, 20_000),
    status: 'REM_OP_ERR',
    received: 'LOC_PROT_ERR',
    receive: (pieces, { to }) => withKey(pieces, to.arena.rkey),
  }),
  'a local key that is none': (random) => ({
    kind: random.pick(['SEND', 'RDMA_WRITE'] as const),
    length: random.between(1, 20_000),
    status: 'LOC_PROT_ERR',
    send: (request, { from }) => ({ ...request, pieces: withKey(request.pieces ?? [], from.arena.rkey) }),
  }),
  'a READ into a region that may not be written': (random) => ({
    kind: 'RDMA_READ',
    length: random.between(1, 20_000),
    status: 'LOC_PROT_ERR',
    send: (request, { from }) => {
      const readOnly = from.rig.regionAt(from.arena.ptr, from.size, 0);
      return { ...request, pieces: withKey(request.pieces ?? [], readOnly.lkey) };
    },
  }),
  'LOCAL_INV of a region that forbids it': () => ({
    kind: 'LOCAL_INV',
    length: 0,
    status: 'MW_BIND_ERR',
    send: (request, { from }) => ({ ...request, imm: from.arena.rkey }),
  }),
  // the message arrives and is acknowledged; the peer's queue pair fails all the same
  'SEND_WITH_INV of a region that forbids it': (random) => ({
    kind: 'SEND_WITH_INV',
    length: random.below(5000),
    status: 'SUCCESS',
    after: 'RETRY_EXC_ERR',
    received: 'REM_INV_REQ_ERR',
    send: (request, { to }) => ({ ...request, imm: to.arena.rkey }),
  }),
};

/** Puts one of the invalid requests somewhere into a stream of `ops` requests. */
export function violation(name: string): (random: Random, ops: number) => Violation {
  return (random, ops) => ({ ...(CRIMES[name] as Crime)(random), index: random.below(ops) });
}
