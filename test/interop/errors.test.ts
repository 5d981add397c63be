// Every error of the RC error table (IBTA 9.9.3) that one end can cause at the other: the NAK on the wire, the status
// of both ends' completions, and the states of both queue pairs. Deviations of rxe are noted in their rows.
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { QpState, WcStatus } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { type LinkKind, OurDevice } from './card.js';
import { type End, type EndOptions, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, type Request } from './end.js';
import { corners, describeWithRxe } from './environment.js';
import { GUEST_IS, USES_LIBRARY } from './guest/differences.js';
import { CARD } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES, type Family, type Pair } from './pair.js';
import { RxeEnd } from './rxe.js';

const { SUCCESS, LOC_LEN_ERR, LOC_QP_OP_ERR, LOC_PROT_ERR, WR_FLUSH_ERR, REM_INV_REQ_ERR } = WcStatus;
const { REM_ACCESS_ERR, REM_OP_ERR, RETRY_EXC_ERR, RNR_RETRY_EXC_ERR } = WcStatus;

const NAK_INVALID_REQUEST = 0x61;
const NAK_REMOTE_ACCESS = 0x62;
const NAK_REMOTE_OPERATION = 0x63;
const RNR = 0x20;
/** 0.64 ms. */
const RNR_CODE = 12;

/** Two retries of 67 ms each: enough for an answer under emulation, and short where there is none. */
const IMPATIENT = { timeout: 14, retry: 2 } as const;

interface Ends {
  readonly from: End;
  readonly to: End;
}

interface Row {
  readonly name: string;
  readonly responder?: EndOptions;
  /** Returns the work request that the requester posts. */
  request(ends: Ends): Request | Promise<Request>;
  /** Posts the responder's receive. */
  receive?(to: End): Promise<void>;
  readonly nak: number;
  /** Completion status at the requester. */
  readonly status: number;
  /** Completion status of the responder's first receive; undefined: flushed. */
  readonly received?: number;
  /** Differences when rxe is the responder. */
  readonly rxe?: Partial<Pick<Row, 'nak' | 'status' | 'received'>>;
  /** The reason why rxe cannot send such a request. */
  readonly rxeRefuses?: string;
  /** The event that our card raises as responder; rxe raises none. */
  readonly event?: string;
}

const atomic = { pieces: [[0, 8]], add: 1n, compare: 0n, swap: 1n } as const;

/** Waits for the state ERR. rxe reports the completion before its queue pair enters that state. */
const inError = (end: End) => eventually(async () => expect(await end.state()).toBe(QpState.ERR));

/** The three kinds of remote access, and the right that each needs. */
const ACCESSES = [
  { op: 'write', right: REMOTE_WRITE, request: { op: 'write', pieces: [[0, 3000]] } },
  { op: 'read', right: REMOTE_READ, request: { op: 'read', pieces: [[0, 3000]] } },
  { op: 'fetch and add', right: REMOTE_ATOMIC, request: { op: 'faa', ...atomic } },
  { op: 'compare and swap', right: REMOTE_ATOMIC, request: { op: 'cas', ...atomic } },
] as const;

const refusedAccess = { nak: NAK_REMOTE_ACCESS, status: REM_ACCESS_ERR, event: 'QP_ACCESS_ERR' } as const;
const invalidRequest = { nak: NAK_INVALID_REQUEST, status: REM_INV_REQ_ERR, event: 'QP_REQ_ERR' } as const;

const ROWS: readonly Row[] = [
  ...ACCESSES.flatMap(({ op, right, request }): Row[] => [
    {
      name: `${op} with a key that does not exist`,
      request: ({ to }) => ({ ...request, offset: 0, rkey: (to.introduction.rkey ^ 0x5a) >>> 0 }),
      ...refusedAccess,
    },
    {
      name: `${op} past the end of the region`,
      request: ({ to }) => ({ ...request, offset: to.size - 1 - ((to.size - 1) % 8) + (op.includes(' ') ? 8 : 0) }),
      ...refusedAccess,
    },
    {
      name: `${op} before the start of the region`,
      request: ({ to }) => ({ ...request, at: to.introduction.addr - 8n }),
      ...refusedAccess,
    },
    {
      name: `${op} so far up that address and length pass 2^64`,
      request: () => ({ ...request, at: 0xffff_ffff_ffff_fff8n }),
      ...refusedAccess,
    },
    {
      name: `${op} to a region without the right`,
      async request({ to }) {
        const { addr, rkey } = await to.register(4096, 15 & ~right);
        return { ...request, at: addr, rkey };
      },
      ...refusedAccess,
    },
    {
      name: `${op} to a queue pair without the right`,
      responder: { access: 15 & ~right },
      request: () => ({ ...request, offset: 0 }),
      ...invalidRequest,
      event: 'QP_ACCESS_ERR',
    },
  ]),
  ...(['faa', 'cas'] as const).map(
    (op): Row => ({
      name: `${op} at an address that is no multiple of 8`,
      request: () => ({ op, ...atomic, offset: op === 'faa' ? 4 : 17 }),
      ...invalidRequest,
      rxeRefuses: 'rdma-core refuses to post it',
    }),
  ),
  {
    name: 'READ where the responder keeps no answers',
    responder: { destRdAtomic: 0 },
    request: () => ({ op: 'read', pieces: [[0, 10]], offset: 0 }),
    ...invalidRequest,
  },
  {
    name: 'fetch and add where the responder keeps no answers',
    responder: { destRdAtomic: 0 },
    request: () => ({ op: 'faa', ...atomic, offset: 0 }),
    ...invalidRequest,
  },
  ...[101, 5000].map(
    (length): Row => ({
      name: `SEND of ${length} bytes into a receive of 100 (rxe calls that an operation error)`,
      request: () => ({ op: 'send', pieces: [[0, length]] }),
      receive: (to) => to.postRecv([[0, 100]], 1),
      nak: NAK_INVALID_REQUEST,
      status: REM_INV_REQ_ERR,
      received: LOC_LEN_ERR,
      rxe: { nak: NAK_REMOTE_OPERATION, status: REM_OP_ERR, received: LOC_QP_OP_ERR },
    }),
  ),
  {
    name: 'SEND into a receive whose memory may not be written (rxe: its receive says LOC_QP_OP_ERR)',
    responder: { regionAccess: REMOTE_READ },
    request: () => ({ op: 'send', pieces: [[0, 50]] }),
    receive: (to) => to.postRecv([[0, 100]], 1),
    nak: NAK_REMOTE_OPERATION,
    status: REM_OP_ERR,
    received: LOC_PROT_ERR,
    rxe: { received: LOC_QP_OP_ERR },
  },
];

describeWithRxe('errors between our card and rxe', 9000, (environment) => {
  describe.each<[LinkKind, Family]>([
    ['packet', 'IPv4'],
    ['udp', 'IPv6'],
  ])('link %s, %s', (link, family) => {
    let ours: OurDevice;
    let peer: Peer;
    beforeAll(async () => {
      ours = await OurDevice.open(link, { tap: true });
      peer = await Peer.start(environment.guest, FAMILIES[family].gid);
    });
    afterAll(async () => {
      await peer?.close();
      await ours?.[Symbol.asyncDispose]();
    });

    describe.each(['our card', 'rxe'] as const)('%s requests', (asks) => {
      async function connected(requester: EndOptions, responder: EndOptions): Promise<Pair & Ends> {
        const options = asks === 'our card' ? { card: requester, rxe: responder } : { card: responder, rxe: requester };
        const pair = await connectPair({ ours, peer, family }, {}, options);
        const [from, to] = asks === 'our card' ? [pair.card, pair.rxe] : [pair.rxe, pair.card];
        return { ...pair, from, to };
      }

      /** Returns the syndromes of all NAKs of this pair. */
      const naks = ({ card, rxe }: Pair) => ours.tap?.naks(card.qp.qpNum, rxe.qp.qpn);

      for (const row of ROWS) {
        const refused = asks === 'rxe' ? row.rxeRefuses : undefined;
        test.skipIf(refused)(refused ? `${row.name} [skipped: ${refused}]` : row.name, () => provoke(row));
      }

      async function provoke(row: Row): Promise<void> {
        await using pair = await connected({}, row.responder ?? {});
        const { from, to } = pair;
        const { nak, status, received } = asks === 'our card' && !USES_LIBRARY ? { ...row, ...row.rxe } : row;
        const events: string[] = [];
        pair.card.qp.on('event', ({ type }: { type: string }) => events.push(type));
        await row.receive?.(to);
        await to.postRecv([], 2);
        await from.postRecv([], 3);
        await from.postSend({ ...(await row.request(pair)), id: 4 });
        await from.postSend({ op: 'write', id: 5, pieces: [[0, 1]], offset: 0 });

        // the request fails, and all other work requests are flushed in order, at both ends
        const failed = await from.completions(3);
        expect(failed.filter(({ id }) => id > 3)).toEqual([
          { id: 4, status },
          { id: 5, status: WR_FLUSH_ERR },
        ]);
        expect(failed.filter(({ id }) => id === 3)).toEqual([{ id: 3, status: WR_FLUSH_ERR }]);
        const flushed = { id: 2, status: WR_FLUSH_ERR };
        const told = received === undefined ? [] : [{ id: 1, status: received }];
        expect(await to.completions(told.length + 1)).toEqual([...told, flushed]);
        expect(naks(pair)).toEqual([nak]);
        for (const end of [from, to]) await inError(end);
        if (asks === 'rxe') expect(events).toEqual(row.event ? [row.event] : []);
      }

      test('a SEND without a receive gets RNR NAKs, and succeeds once there is one', async () => {
        await using pair = await connected({ rnr: 7 }, { minRnr: RNR_CODE });
        const { from, to } = pair;
        await from.fill(1);
        await from.postSend({ op: 'send', id: 1, pieces: [[0, 2500]] });
        await eventually(() => expect(naks(pair)).toContain(RNR | RNR_CODE));
        await to.postRecv([[7, 3000]], 2);
        expect(await from.completions(1)).toMatchObject([{ id: 1, status: SUCCESS }]);
        expect(await to.completions(1)).toMatchObject([{ id: 2, status: SUCCESS, byteLen: 2500 }]);
        expect(await to.get(7, 2500)).toEqual(await from.get(0, 2500));
        const said = naks(pair) as number[];
        expect(said[0]).toBe(RNR | RNR_CODE);
        // rxe also sends "sequence error" for packets in flight after the one that found no receive
        const others = asks === 'our card' && !USES_LIBRARY ? [0x60] : [];
        expect(new Set(said)).toEqual(new Set([RNR | RNR_CODE, ...others]));
      });

      test('a SEND that never finds a receive fails with RNR_RETRY_EXC_ERR after one retry', async () => {
        // The acknowledge timeout (4.3 s) must not repeat the request on a machine that stands still for a while.
        await using pair = await connected({ rnr: 1, timeout: 20 }, { minRnr: RNR_CODE });
        const { from, to } = pair;
        await from.postSend({ op: 'send', id: 1, pieces: [[0, 25]] });
        await from.postSend({ op: 'read', id: 2, pieces: [[0, 25]], offset: 0 });
        expect(await from.completions(2)).toEqual([
          { id: 1, status: RNR_RETRY_EXC_ERR },
          { id: 2, status: WR_FLUSH_ERR },
        ]);
        expect(naks(pair)?.filter((syndrome) => syndrome !== 0x60)).toEqual([RNR | RNR_CODE, RNR | RNR_CODE]);
        await inError(from);
        expect(await to.state()).toBe(QpState.RTS);
      });

      test('a WRITE without a receive for its immediate gets the RNR NAK at its last packet only', async () => {
        await using pair = await connected({ rnr: 7 }, { minRnr: RNR_CODE });
        const { from, to } = pair;
        await from.fill(9);
        await from.postSend({ op: 'write_imm', id: 1, pieces: [[0, 2500]], offset: 100, imm: 77 });
        await eventually(() => expect(naks(pair)).toContain(RNR | RNR_CODE));
        await to.postRecv([], 2);
        expect(await from.completions(1)).toMatchObject([{ id: 1, status: SUCCESS }]);
        expect(await to.completions(1)).toMatchObject([{ id: 2, status: SUCCESS, byteLen: 2500, imm: 77 }]);
        expect(await to.get(100, 2500)).toEqual(await from.get(0, 2500));
        expect(naks(pair)?.length).toBeGreaterThan(0);
      });

      test('a SEND that invalidates a wrong key is acknowledged, and its receiver fails', async () => {
        await using pair = await connected({ timeout: 16, retry: 2 }, {});
        const { from, to } = pair;
        await to.postRecv([[0, 100]], 1);
        await from.postSend({ op: 'send_inv', id: 2, pieces: [[0, 10]], inv: (to.introduction.rkey ^ 0x5a) >>> 0 });
        expect(await to.completions(1)).toEqual([{ id: 1, status: REM_INV_REQ_ERR }]);
        expect(await from.completions(1)).toMatchObject([{ id: 2, status: SUCCESS }]);
        await inError(to);
        await from.postSend({ op: 'write', id: 3, pieces: [[0, 10]], offset: 0 });
        expect(await from.completions(1)).toEqual([{ id: 3, status: RETRY_EXC_ERR }]);
        expect(naks(pair)).toEqual([]);
      });

      test.each([
        ['destroyed', async (to: End) => to[Symbol.asyncDispose]()],
        ['in ERR', async (to: End) => to.fail()],
      ] as const)('a request to a peer that is %s fails with RETRY_EXC_ERR after all retries', async (_what, end) => {
        await using pair = await connected(IMPATIENT, {});
        const { from, to } = pair;
        await end(to);
        await from.postSend({ op: 'write', id: 1, pieces: [[0, 10]], offset: 0 });
        await from.postSend({ op: 'send', id: 2 });
        expect(await from.completions(2)).toEqual([
          { id: 1, status: RETRY_EXC_ERR },
          { id: 2, status: WR_FLUSH_ERR },
        ]);
        await inError(from);
        const qpn = to.introduction.qpn;
        const tries = ours.tap?.frames(qpn).filter(({ bth }) => bth.opcode === RDMA_WRITE_ONLY);
        expect(tries).toHaveLength(1 + IMPATIENT.retry);
        expect(naks(pair)).toEqual([]);
      });

      test('a request to an unknown queue pair number fails with RETRY_EXC_ERR', async () => {
        await using card = await ours.end(FAMILIES[family].guest, IMPATIENT);
        await using rxe = await RxeEnd.create(peer, IMPATIENT);
        const [from, to] = asks === 'our card' ? [card, rxe] : [rxe, card];
        await from.connect({ ...to.introduction, qpn: to.introduction.qpn ^ 0x5500 });
        await to.connect(from.introduction);
        await from.postSend({ op: 'read', id: 1, pieces: [[0, 10]], offset: 0 });
        expect(await from.completions(1)).toEqual([{ id: 1, status: RETRY_EXC_ERR }]);
        if (asks === 'rxe') expect(ours.device.counters().drop_qpn).toBeGreaterThanOrEqual(1 + IMPATIENT.retry);
      });
    });
  });

  describe.each(corners<LinkKind>(['packet', 'udp'], (link) => link === 'packet'))('link %s', (link) => {
    const setInterface = {
      guest: (state: string) => environment.guest.run(`ip link set eth0 ${state}`),
      ours: async (state: string) => execFileSync('ip', ['link', 'set', CARD.interface, state]),
    };

    test.each([
      // rxe fails at once when it cannot send
      ["the guest's", setInterface.guest, GUEST_IS.interfaceDown],
      ['our', setInterface.ours, RETRY_EXC_ERR],
    ] as const)(
      'while %s interface is down neither end gets an answer, and afterwards both go on',
      async (_, set, atRxe) => {
        await using ours = await OurDevice.open(link);
        await using peer = await Peer.start(environment.guest);
        const where = { ours, peer, family: 'IPv4' } as const;
        try {
          await using pair = await connectPair(where, IMPATIENT);
          await set('down');
          for (const end of [pair.card, pair.rxe])
            await end.postSend({ op: 'write', id: 1, pieces: [[0, 40_000]], offset: 0 });
          expect(await pair.card.completions(1)).toEqual([{ id: 1, status: RETRY_EXC_ERR }]);
          expect(await pair.rxe.completions(1)).toEqual([{ id: 1, status: atRxe }]);
        } finally {
          await set('up');
        }
        await using pair = await connectPair(where);
        for (const end of [pair.card, pair.rxe]) {
          await end.postSend({ op: 'write', id: 2, pieces: [[0, 40_000]], offset: 0 });
          expect(await end.completions(1)).toMatchObject([{ id: 2, status: SUCCESS }]);
        }
      },
    );
  });
});

const RDMA_WRITE_ONLY = 0x0a;
