// Shared receive queues through the API.
import { expect, test } from 'vitest';
import { type AsyncEvent, MemoryHub, type Srq } from '../../src/index.js';
import { type End, endOn, openOn } from './pair.js';

const WAIT = { timeout: 20_000 };

interface Star extends AsyncDisposable {
  readonly server: End;
  readonly srq: Srq;
  readonly clients: readonly End[];
}

/** A server with one queue pair for each client, all on one shared receive queue. */
async function star(count: number, options = {}): Promise<Star> {
  const hub = new MemoryHub();
  const server = await endOn(await openOn(hub));
  const srq = await server.pd.createSrq(options);
  const clients: End[] = [];
  for (let i = 0; i < count; i++) {
    const client = await endOn(await openOn(hub, { seed: 10 + i }));
    const qp = await server.pd.createQp({ sendCq: server.cq, srq });
    await qp.connect(client.qp.endpoint());
    await client.qp.connect(qp.endpoint(), { minRnrTimer: 1 });
    clients.push(client);
  }
  return {
    server,
    srq,
    clients,
    async [Symbol.asyncDispose]() {
      for (const { device } of [server, ...clients]) await device.close({ force: true });
    },
  };
}

/** Compares labels only: a device is too large an object to compare. */
const about = (event: AsyncEvent): string[] => [
  event.type,
  `${'srq' in event ? event.srq : 'qp' in event ? event.qp : 'cq' in event ? event.cq : event.device}`,
];

const event = (from: Srq) => new Promise<AsyncEvent>((resolve) => from.once('event', resolve));

test('queue pairs of an SRQ take its receives in the order of their messages', async () => {
  await using s = await star(3, { maxWr: 8 });
  const { server, srq, clients } = s;
  for (let i = 0; i < 6; i++) srq.postRecv({ wrId: i, sgList: server.mr.sge(i * 100, 100) });
  expect(srq.query()).toEqual({ maxWr: 8, maxSge: 4, srqLimit: 0, pending: 6 });
  for (let i = 0; i < 6; i++) {
    const { qp, cq } = clients[i % 3] as End;
    qp.postSend({ opcode: 'SEND', sgList: Buffer.from(`m${i}`) });
    expect(await server.cq.next(WAIT)).toMatchObject({ wrId: i, ok: true, byteLen: 2 });
    expect(server.mr.buffer.toString('latin1', i * 100, i * 100 + 2)).toBe(`m${i}`);
    await cq.next(WAIT);
  }
  expect(srq.query().pending).toBe(0);
});

test('an SRQ below its limit raises SRQ_LIMIT_REACHED once, until the limit is set again', async () => {
  await using s = await star(1, { maxWr: 8, srqLimit: 2 });
  const { server, srq, clients } = s;
  const [{ qp }] = clients as [End];
  srq.postRecv([{}, {}, {}]);
  const first = event(srq);
  qp.postSend([{ opcode: 'SEND' }, { opcode: 'SEND' }]);
  expect(about(await first)).toEqual(['SRQ_LIMIT_REACHED', `${srq}`]);
  expect(srq.query()).toMatchObject({ srqLimit: 0, pending: 1 });
  await srq.modify({ srqLimit: 1 });
  const events = server.device.events[Symbol.asyncIterator]();
  const second = events.next();
  qp.postSend({ opcode: 'SEND' });
  expect(about((await second).value)).toEqual(['SRQ_LIMIT_REACHED', `${srq}`]);
});

test('senders to an empty SRQ wait until a receive is posted', async () => {
  await using s = await star(2);
  const { server, srq, clients } = s;
  for (const { qp } of clients) qp.postSend({ opcode: 'SEND', sgList: Buffer.from('hi') });
  await expect(server.cq.next({ timeout: 20 })).rejects.toThrow('ETIMEDOUT');
  srq.postRecv([{ sgList: server.mr.sge(0, 10) }, { sgList: server.mr.sge(10, 10) }]);
  expect([(await server.cq.next(WAIT)).ok, (await server.cq.next(WAIT)).ok]).toEqual([true, true]);
});

test('resize keeps posted receives, and is refused when they do not fit', async () => {
  await using s = await star(1, { maxWr: 4 });
  const { server, srq, clients } = s;
  srq.postRecv([{ wrId: 1 }, { wrId: 2 }, { wrId: 3 }, { wrId: 4 }]);
  expect(() => srq.postRecv([{ wrId: 5 }])).toThrow(/ENOMEM: receive queue of srq \d+ is full: maxRecvWr is 4/);
  await srq.modify({ maxWr: 16, srqLimit: 9 });
  srq.postRecv({ wrId: 5 });
  expect(srq.query()).toEqual({ maxWr: 16, maxSge: 4, srqLimit: 9, pending: 5 });
  await expect(srq.modify({ maxWr: 4 })).rejects.toThrow(
    /EINVAL: maxWr is 4, must fit the 5 pending requests and srqLimit 9 of srq \d+/,
  );
  await expect(srq.modify({ srqLimit: 17 })).rejects.toThrow(
    /EINVAL: srqLimit is 17, must be at most the 16 requests that srq \d+ holds/,
  );
  const [{ qp }] = clients as [End];
  for (let i = 1; i <= 5; i++) {
    qp.postSend({ opcode: 'SEND' });
    expect(await server.cq.next(WAIT)).toMatchObject({ wrId: i });
  }
});

test('a queue pair in ERR leaves the receives of its SRQ, and raises QP_LAST_WQE_REACHED', async () => {
  await using s = await star(1);
  const { server, srq } = s;
  srq.postRecv([{}, {}]);
  const qp = await server.pd.createQp({ sendCq: server.cq, srq });
  await qp.connect((s.clients[0] as End).qp.endpoint());
  const told = new Promise<AsyncEvent>((resolve) => qp.once('event', resolve));
  await qp.modify({ state: 'ERR' });
  expect(about(await told)).toEqual(['QP_LAST_WQE_REACHED', `${qp}`]);
  expect(srq.query().pending).toBe(2);
  expect([qp.srq === srq, qp.maxRecvWr, qp.maxRecvSge]).toEqual([true, 0, 0]);
});

test('createSrq refuses wrong arguments, and an SRQ closes after its queue pairs', async () => {
  await using s = await star(1);
  const { server, srq, clients } = s;
  const [client] = clients as [End];
  await expect(server.pd.createSrq({ maxWr: 0 })).rejects.toThrow(/maxWr is 0, must be from 1 to 32768/);
  await expect(server.pd.createSrq({ maxWr: 4, srqLimit: 5 })).rejects.toThrow(RangeError);
  await expect(client.pd.createQp({ sendCq: client.cq, srq })).rejects.toThrow(/srq belongs to another device/);
  await expect(client.pd.createQp({ sendCq: client.cq, srq: {} as Srq })).rejects.toThrow(TypeError);
  expect(() => srq.postRecv([{}, { sgList: Array(5).fill(server.mr.sge(0, 1)) }])).toThrow(
    expect.objectContaining({ badWr: 1 }),
  );
  expect(srq.query().pending).toBe(1);
  await expect(srq.close()).rejects.toThrow(/EBUSY: srq \d+ has 1 qp/);
  const qp = await server.pd.createQp({ sendCq: server.cq, srq });
  expect(() => qp.postRecv({})).toThrow(/EINVAL: qp .* takes its receives from srq \d+: post them there/);
  const own = await server.pd.createSrq();
  await own.close();
  expect(() => own.postRecv({})).toThrow(/EINVAL: srq \d+ is closed/);
});
