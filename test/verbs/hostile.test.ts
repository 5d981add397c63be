/**
 * Objects that answer differently each time they are asked: every property of a request is read once, and what the card
 * gets is what was checked.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Device, openDevice, type SendWr } from '../../src/index.js';
import { ALL, connectedPair } from './pair.js';

const SENTINEL = 0xa5;
const WAIT = { timeout: 20_000 };

/** An object that counts how often each property is read. */
function counting<T extends object>(values: T): { object: T; reads: Map<PropertyKey, number> } {
  const reads = new Map<PropertyKey, number>();
  const object = new Proxy(values, {
    get(target, name) {
      reads.set(name, (reads.get(name) ?? 0) + 1);
      return Reflect.get(target, name);
    },
  });
  return { object, reads };
}

/** An object whose property has another value each time it is read: the last one in the end. */
function changing<T extends object>(values: T, name: keyof T, answers: readonly unknown[]): T {
  let reads = 0;
  return Object.defineProperty({ ...values }, name, {
    enumerable: true,
    get: () => answers[Math.min(reads++, answers.length - 1)],
  });
}

const LARGE = 500_000;

test('a length that grows after its check does not overwrite the card', async () => {
  await using pair = await connectedPair({ qp: { maxInlineData: 64 } });
  const { a } = pair;
  const guard = await a.pd.regMr(2 * LARGE);
  guard.buffer.fill(SENTINEL);
  const { addr, lkey } = guard.sge(0, 8);
  const sgList = changing({ addr, length: 8, lkey }, 'length', [8, LARGE]);
  const before = Buffer.from(a.device.card.bytes.slice());
  a.qp.postSend({ opcode: 'SEND', sgList, inline: true, solicited: true });
  const after = a.device.card.bytes;
  let changed = 0;
  for (let i = 0; i < before.length; i++) if (before[i] !== after[i]) changed++;
  expect(changed).toBeLessThan(4096);
  expect(guard.buffer.every((byte) => byte === SENTINEL)).toBe(true);
});

test.each([
  [
    'length',
    class extends Uint8Array {
      override get length() {
        return 4;
      }
    },
  ],
  [
    'byteLength',
    class extends Uint8Array {
      override get byteLength() {
        return 4;
      }
    },
  ],
])('a Uint8Array with a forged %s has its true length', async (_, Lying) => {
  await using pair = await connectedPair({ qp: { maxInlineData: 64 } });
  expect(() => pair.a.qp.postSend({ opcode: 'SEND', sgList: new Lying(LARGE) })).toThrow(
    /inline data has 500000 bytes/,
  );
  expect(await pair.a.pd.regMr(new Lying(8))).toMatchObject({ length: 8 });
});

test('inline bytes may be in shared memory, and those of a proxy are refused', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  const shared = new Uint8Array(new SharedArrayBuffer(5));
  shared.set(Buffer.from('hello'));
  a.qp.postSend({ opcode: 'SEND', sgList: shared });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 5 });
  expect(b.mr.buffer.toString('latin1', 0, 5)).toBe('hello');
  expect(() => a.qp.postSend({ opcode: 'SEND', sgList: new Proxy(new Uint8Array(8), {}) })).toThrow(TypeError);
});

test('post reads each property of a work request once', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const wrs: SendWr[] = [
    { opcode: 'SEND', wrId: 1, inline: true },
    { opcode: 'SEND_WITH_IMM', immData: 5 },
    { opcode: 'SEND_WITH_INV', invalidateRkey: 5 },
    { opcode: 'RDMA_WRITE', remoteAddr: b.mr.iova, rkey: b.mr.rkey },
    { opcode: 'RDMA_READ', remoteAddr: b.mr.iova, rkey: b.mr.rkey },
    { opcode: 'ATOMIC_CMP_AND_SWP', remoteAddr: b.mr.iova, rkey: b.mr.rkey, compareAdd: 1n, swap: 2n },
    { opcode: 'FLUSH', remoteAddr: b.mr.iova, rkey: b.mr.rkey, length: 8 },
  ];
  for (const wr of wrs) {
    const element = counting({ ...a.mr.sge(0, 8) });
    const list = counting([element.object]);
    const request = counting({ ...wr, ...(wr.opcode !== 'FLUSH' && { sgList: list.object }) });
    a.qp.postSend(request.object as SendWr);
    for (const { reads } of [element, list, request])
      for (const [name, count] of reads) expect([wr.opcode, name, count]).toEqual([wr.opcode, name, 1]);
  }
  for (const queue of [a.qp, await a.pd.createSrq()]) {
    const element = counting({ ...a.mr.sge(0, 8) });
    const request = counting({ wrId: 1, sgList: element.object });
    queue.postRecv(request.object);
    for (const { reads } of [element, request]) expect([...reads.values()].every((count) => count === 1)).toBe(true);
  }
  const options = counting({ sendCq: a.cq, maxSendWr: 4, maxRecvWr: 4, maxInlineData: 8, sqSigAll: true });
  (await a.pd.createQp(options.object)).close();
  const region = counting({ access: ['localWrite'] as const, iova: 4096 });
  (await a.pd.regMr(4096, region.object)).close();
  for (const { reads } of [options, region])
    for (const [name, count] of reads) expect([name, count]).toEqual([name, 1]);
});

test('a work request whose getter closes the queue, the address handle or the domain is refused', async () => {
  await using pair = await connectedPair();
  const { a } = pair;
  const qp = await a.pd.createQp({ sendCq: a.cq, type: 'UD' });
  const srq = await a.pd.createSrq();
  await qp.activate({ qkey: 1 });
  const ah = await a.pd.createAh({ grh: { dgid: pair.b.device.gids[0]?.gid as string } });
  const closing = <T extends object>(values: T, name: keyof T, close: () => unknown): T =>
    Object.defineProperty({ ...values }, name, {
      get: () => {
        close();
        return values[name];
      },
    });
  const datagram = { opcode: 'SEND', ah, remoteQpn: 1, remoteQkey: 1, sgList: new Uint8Array(4) } as const;
  expect(() => qp.postSend(closing(datagram, 'remoteQkey', () => ah.close()))).toThrow(/^EINVAL: ah .* is closed/);
  const impostor = Object.create(ah, { handle: { value: 4096 }, maxMessage: { value: 2 ** 30 } });
  expect(() => qp.postSend({ ...datagram, ah: impostor })).toThrow(/must be an address handle/);
  expect(() => qp.postSend({ ...datagram, ah: new Proxy(ah, {}) })).toThrow(/must be an address handle/);
  const empty = { wrId: 0, sgList: [] };
  expect(() => srq.postRecv(closing(empty, 'sgList', () => srq.close()))).toThrow(/^EINVAL: srq .* is closed/);
  expect(() => qp.postRecv(closing(empty, 'sgList', () => qp.close()))).toThrow(/^EINVAL: qp .* is closed/);
});

/** Values that a number may be mistaken for, or that a check may let pass once. */
const strange = fc.oneof(
  fc.constantFrom<unknown>(
    ...[undefined, null, true, '', '8', 'NaN', Number.NaN, Infinity, -Infinity, -0, -1, 0.5, 8n, -1n, 2n ** 64n],
    ...[2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53, -(2 ** 31), [], [8], {}, Symbol('s'), () => 8],
    ...[{ valueOf: () => 8 }, { [Symbol.toPrimitive]: () => 8 }, Object(8), new Proxy({}, {}), new Uint8Array(8)],
  ),
  fc.double(),
  fc.bigInt(),
  fc.integer(),
);
const answers = fc.array(strange, { minLength: 1, maxLength: 3 });

test('the card refuses or executes work requests with random properties, and goes on', async () => {
  await using device: Device = await openDevice({ link: 'memory', memoryBytes: 16 * 2 ** 20 });
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 64 });
  // a queue of its own: that of the queue pairs overruns when one entry is left of it
  const resized = await device.createCq({ cqe: 64 });
  const mr = await pd.regMr(4096, { access: [...ALL, 'mwBind'] });
  const guard = await pd.regMr(65536);
  guard.buffer.fill(SENTINEL);
  const fast = await pd.allocMr();
  const mw = await pd.allocMw(2);
  const ud = await pd.createQp({ type: 'UD', sendCq: cq });
  await ud.activate({ qkey: 1 });
  const rc = await pd.createQp({ sendCq: cq });
  await rc.connect(rc.endpoint(), { access: ALL });
  const srq = await pd.createSrq();
  const ah = await pd.createAh({ grh: { dgid: device.gids[0]?.gid as string } });
  const slice = mr.sge(0, 8);
  const remote = { remoteAddr: mr.iova, rkey: mr.rkey };
  // biome-ignore lint/suspicious/noExplicitAny: the values are not what the types say
  type Loose = any;
  const sends = (sgList: Loose): Loose[] => [
    { opcode: 'SEND', wrId: 1, sgList, inline: false, signaled: true, solicited: true, fence: true },
    { opcode: 'SEND_WITH_IMM', immData: 1, sgList, inline: true },
    { opcode: 'SEND_WITH_INV', invalidateRkey: 1, sgList },
    { opcode: 'RDMA_WRITE', ...remote, sgList },
    { opcode: 'RDMA_READ', ...remote, sgList },
    { opcode: 'ATOMIC_CMP_AND_SWP', ...remote, compareAdd: 1n, swap: 1n, sgList },
    { opcode: 'ATOMIC_FETCH_AND_ADD', ...remote, compareAdd: 1n, swap: 1n, sgList },
    { opcode: 'FLUSH', ...remote, length: 8, placement: 'global', selectivity: 'range' },
    { opcode: 'LOCAL_INV', invalidateRkey: 1 },
    { opcode: 'BIND_MW', mw, mr, offset: 0, length: 8, access: ['remoteRead'], rkey: mw.rkey },
    { opcode: 'REG_MR', mr: fast, buffer: mr, access: ['remoteRead'], iova: 4096, rkey: fast.rkey },
  ];
  const entries: readonly [string, Loose[], (object: Loose) => unknown][] = [
    ['rc.postSend', sends(slice), (wr) => rc.postSend(wr)],
    ['ud.postSend', [{ opcode: 'SEND', ah, remoteQpn: 1, remoteQkey: 1, sgList: slice }], (wr) => ud.postSend(wr)],
    ['sge', [slice], (sge) => rc.postSend({ opcode: 'SEND', sgList: [slice, sge] })],
    ['inline sge', [slice], (sge) => rc.postSend({ opcode: 'SEND', sgList: [slice, sge], inline: true })],
    ['rc.postRecv', [{ wrId: 1, sgList: slice }], (wr) => rc.postRecv(wr)],
    ['srq.postRecv', [{ wrId: 1, sgList: slice }], (wr) => srq.postRecv(wr)],
    ['recv sge', [slice], (sge) => srq.postRecv({ sgList: [sge, sge] })],
    ['regMr', [{ access: ['localWrite'], iova: 1 }], async (o) => (await pd.regMr(64, o)).close()],
    [
      'createQp',
      [{ sendCq: cq, maxSendWr: 1, maxSendSge: 1, maxInlineData: 1, sqSigAll: true, quirks: [] }],
      async (o) => (await pd.createQp(o)).close(),
    ],
    ['createSrq', [{ maxWr: 1, maxSge: 1, srqLimit: 0 }], async (o) => (await pd.createSrq(o)).close()],
    ['srq.modify', [{ maxWr: 64, srqLimit: 1 }], (o) => srq.modify(o)],
    ['createCq', [{ cqe: 1 }], async (o) => (await device.createCq(o)).close()],
    [
      'rereg',
      [{ access: ['localWrite'], buffer: 64, iova: 1 }],
      async (o) => {
        const region = await pd.regMr(64);
        await region.rereg(o).finally(() => region.close());
      },
    ],
    ['slice', [{ offset: 0, length: 8 }], (o) => mr.sge(o.offset, o.length)],
    ['congestion', [{ enabled: true, ect: true }], (o) => device.congestion.modify(o)],
    ['arm', [{ solicited: true }], (o) => cq.arm(o.solicited)],
    ['resize', [{ cqe: 64 }], (o) => resized.resize(o.cqe)],
  ];
  const wcs = cq.createWcs(64);
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...entries),
      fc.nat(),
      fc.nat(),
      answers,
      async ([, forms, call], form, property, values) => {
        const base = forms[form % forms.length];
        const names = Object.keys(base);
        const name = names[property % names.length] as string;
        try {
          await call(changing(base, name, [...values, base[name]]));
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
          expect(error).not.toBeInstanceOf(WebAssembly.RuntimeError);
        }
        cq.poll(wcs);
        expect(guard.buffer.every((byte) => byte === SENTINEL)).toBe(true);
      },
    ),
    { numRuns: 1500 },
  );
  await new Promise((resolve) => setImmediate(resolve));
  await device.close({ force: true });
});

test.each([undefined, null])(
  'a request, a list of completions or an address that is %s is refused by name',
  async (no) => {
    await using pair = await connectedPair();
    const { qp, cq, pd, device } = pair.a;
    const refused = { code: 'ERR_INVALID_ARG_TYPE' };
    for (const post of [
      () => qp.postSend(no as never),
      () => qp.postSend([no as never]),
      () => qp.postRecv(no as never),
    ])
      expect(post).toThrow(expect.objectContaining(refused));
    expect(() => cq.poll(no as never)).toThrow(`into is ${no}, must be an array of createWcs`);
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on('unhandledRejection', note);
    await expect(device.resolveAddress(no as never)).rejects.toThrow(TypeError);
    await expect(pd.createAh(no as never)).rejects.toThrow(TypeError);
    // a second rejection, which nobody takes, would end the process
    await new Promise((resolve) => setTimeout(resolve, 10));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  },
);
