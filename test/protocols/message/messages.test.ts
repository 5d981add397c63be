// Messages: order, sizes, backpressure, cancelled waits, the end of the connection.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { MemoryHub } from '../../../src/index.js';
import { Connection } from '../../../src/protocols/message/connection.js';
import { connectionSettings } from '../../../src/protocols/message/options.js';
import { SendPool } from '../../../src/transport/pools/sendpool.js';
import { SendQueue, type Slot } from '../../../src/transport/sendqueue.js';
import { eventually } from '../../kit/eventually.js';
import { connectedPair, endOn, openOn, pattern } from '../../verbs/pair.js';
import { allocate, connectionPair, peerAt } from './connectionpair.js';

test('messages come in order with their bytes and immediates, both ways at once', async () => {
  await using ends = await connectionPair({ a: { receives: 8, sends: 4 }, b: { receives: 8, sends: 4 } });
  const sizes = Array.from({ length: 200 }, (_, i) => (i * 97) % 3000);
  const exchange = async (from: typeof ends.a, to: typeof ends.b, seed: number) => {
    const sends = sizes.map((size, i) => from.send(pattern(size, seed + i), i % 3 ? {} : { imm: i }));
    for (const [i, size] of sizes.entries()) {
      const message = await to.receive({ timeout: 20_000 });
      expect(message?.data.equals(pattern(size, seed + i))).toBe(true);
      expect(message?.imm).toBe(i % 3 ? undefined : i);
    }
    await Promise.all(sends);
  };
  await Promise.all([exchange(ends.a, ends.b, 1), exchange(ends.b, ends.a, 1000)]);
});

test('a peer waits for an end that does not read, and no message is lost', async () => {
  await using ends = await connectionPair({ b: { receives: 8 }, a: { sends: 4 } });
  let sent = 0;
  const sends = Array.from({ length: 40 }, async (_, i) => {
    await ends.a.send(Buffer.from([i]));
    sent++;
  });
  await sleep(50);
  expect(sent).toBeLessThanOrEqual(8);
  for (let i = 0; i < 40; i++) expect((await ends.b.receive())?.data[0]).toBe(i);
  await Promise.all(sends);
});

test('the bytes may be changed once the message is posted, and registered memory is sent without a copy', async () => {
  await using ends = await connectionPair();
  const bytes = Buffer.from('first');
  const sent = ends.a.send(bytes);
  bytes.write('other');
  await sent;
  expect((await ends.b.receive())?.data.toString()).toBe('first');
  const mr = await ends.a.share(100_000);
  mr.buffer.write('from registered memory', 5);
  await ends.a.send(mr.sge(5, 22));
  expect((await ends.b.receive())?.data.toString()).toBe('from registered memory');
});

test('a wait ends by time or signal, and takes no message away from the next reader', async () => {
  await using ends = await connectionPair();
  await expect(ends.b.receive({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  const abort = new AbortController();
  const waiting = ends.b.receive({ signal: abort.signal });
  abort.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
  await expect(ends.b.receive({ timeout: -1 })).rejects.toThrow('timeout is -1, must be milliseconds');
  await ends.a.send(Buffer.from('for the next'));
  expect((await ends.b.receive({ timeout: 20_000 }))?.data.toString()).toBe('for the next');
});

test('a reader that waits when the connection becomes a stream gets an error', async () => {
  await using ends = await connectionPair();
  const waiting = [ends.b.receive(), ends.b.receive({ timeout: 20_000 })];
  ends.a.stream().on('error', () => {});
  ends.b.stream().on('error', () => {});
  for (const message of waiting) await expect(message).rejects.toMatchObject({ code: 'EBUSY' });
});

test('an exception of a listener at the end does not keep the connection from being freed', async () => {
  await using ends = await connectionPair();
  const closed = once(ends.a, 'close');
  ends.a.once('end', () => {
    throw new Error('from the listener');
  });
  await expect(ends.a.close()).rejects.toThrow('from the listener');
  await closed;
  expect(ends.a.qp.isClosed).toBe(true);
});

test('a message that is given up before its turn does not leave', async () => {
  await using ends = await connectionPair({ a: { sends: 1 }, b: { receives: 8 } });
  for (let i = 0; i < 8; i++) await ends.a.send(Buffer.from(`read ${i}`));
  const stuck = ends.a.send(Buffer.from('stuck'));
  const abort = new AbortController();
  const data = Buffer.from('given up');
  const givenUp = [ends.a.send(data, { timeout: 5 }), ends.a.send(data, { signal: abort.signal })];
  const behind = ends.a.send(Buffer.from('behind'));
  await expect(givenUp[0]).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  abort.abort(new Error('enough'));
  await expect(givenUp[1]).rejects.toThrow('enough');
  for (let i = 0; i < 8; i++) expect((await ends.b.receive())?.data.toString()).toBe(`read ${i}`);
  for (const text of ['stuck', 'behind']) expect((await ends.b.receive())?.data.toString()).toBe(text);
  await Promise.all([stuck, behind]);
});

test('a message with an aborted signal or wrong options does not leave', async () => {
  await using ends = await connectionPair();
  const { signal } = new AbortController();
  const gone = AbortSignal.abort(new Error('enough'));
  await expect(ends.a.send(Buffer.from('no'), { signal: gone })).rejects.toThrow('enough');
  await expect(ends.a.send(Buffer.from('no'), { signal, timeout: -1 })).rejects.toThrow('timeout is -1');
  await ends.a.send(Buffer.from('yes'), { signal });
  expect((await ends.b.receive())?.data.toString()).toBe('yes');
});

test('a request that is given up when it gets its slot does not leave', async () => {
  await using pair = await connectedPair();
  const { qp, cq } = pair.a;
  const pool = await SendPool.join(pair.a.device);
  const sendQueue = new SendQueue(qp, pool, 1);
  const abort = new AbortController();
  const write = (slot: Slot, wrId: number) => {
    const { addr, rkey } = pair.b.mr.remote;
    return { opcode: 'RDMA_WRITE', wrId, signaled: true, sgList: slot.sge(8), remoteAddr: addr, rkey } as const;
  };
  const make = vi.fn(write);
  // The slot passes to the next request at once, which continues a microtask later.
  const first = sendQueue.submit('', {}, 8, write, () => queueMicrotask(() => abort.abort(new Error('enough'))));
  const second = sendQueue.submit('', { signal: abort.signal }, 8, make, () => {});
  sendQueue.complete(await cq.next());
  await first;
  await expect(second).rejects.toThrow('enough');
  expect(make).not.toHaveBeenCalled();
  await sendQueue.idle();
  await pool.leave(undefined);
});

test('a message that is too long is refused before anything is sent', async () => {
  await using ends = await connectionPair({ a: { messageBytes: 100 } });
  await expect(ends.a.send(Buffer.alloc(101))).rejects.toMatchObject({ code: 'EMSGSIZE' });
  await ends.a.send(Buffer.alloc(100));
  expect((await ends.b.receive())?.data.length).toBe(100);
});

test('a message longer than the peer takes ends both ends, each with the reason', async () => {
  await using ends = await connectionPair({ b: { messageBytes: 100 } });
  const [atA, atB] = [ends.a, ends.b].map((end) => new Promise<Error | undefined>((done) => end.once('close', done)));
  await Promise.all([
    expect(ends.b.receive()).rejects.toMatchObject({ name: 'WcError', status: 'LOC_LEN_ERR' }),
    expect(ends.a.send(Buffer.alloc(101))).rejects.toMatchObject({ name: 'WcError', status: 'REM_INV_REQ_ERR' }),
  ]);
  expect((await atA)?.message).toContain('REM_INV_REQ_ERR');
  expect((await atB)?.message).toContain('LOC_LEN_ERR');
  await expect(ends.a.send(Buffer.alloc(1))).rejects.toMatchObject({ code: 'ECONNRESET' });
});

test('close waits for messages that were sent; the peer reads them all, then the end', async () => {
  await using ends = await connectionPair({ a: { sends: 2 } });
  for (let i = 0; i < 20; i++) void ends.a.send(Buffer.from([i]));
  await ends.a.close();
  const received: (number | undefined)[] = [];
  for await (const { data } of ends.b) received.push(data[0]);
  expect(received).toEqual(Array.from({ length: 20 }, (_, i) => i));
  expect(await ends.b.receive()).toBeUndefined();
  expect([ends.a.isOpen, ends.b.isOpen]).toEqual([false, false]);
});

test('all messages that have arrived at the disconnect are read', async () => {
  const count = 4000;
  await using ends = await connectionPair({
    a: { sends: count, messageBytes: 64 },
    b: { receives: count, messageBytes: 64 },
  });
  // Nothing polls the queue in the meantime.
  ends.b.qp.recvCq.removeAllListeners('completion');
  await Promise.all(Array.from({ length: count }, (_, i) => ends.a.send(Buffer.from([i & 255]))));
  await ends.a.close();
  const received: (number | undefined)[] = [];
  for await (const { data } of ends.b) received.push(data[0]);
  expect(received).toEqual(Array.from({ length: count }, (_, i) => i & 255));
});

test('no message arrives after the end, whose memory may belong to others', async () => {
  await using ends = await connectionPair();
  const { recvCq } = ends.a.qp;
  const look = recvCq.listeners('completion');
  recvCq.removeAllListeners('completion');
  await ends.b.send(Buffer.from('late'));
  ends.a.destroy(new Error('enough'));
  // The queue is still open, and its completion is delivered now.
  for (const listener of look) listener();
  expect(recvCq.isClosed).toBe(false);
  await expect(ends.a.receive()).rejects.toThrow('enough');
});

test('a peer that has vanished is detected by its silence', async () => {
  await using ends = await connectionPair({ a: { keepAlive: 20, peerTimeout: 300 }, b: { keepAlive: 0 } });
  const closed = new Promise<Error | undefined>((done) => ends.a.once('close', done));
  await sleep(100);
  expect(ends.a.isOpen).toBe(true);
  const { qp } = ends.b;
  await qp.modify({ state: 'RESET' });
  expect((await closed)?.message).toBe('ETIMEDOUT: no packet of the peer has come within 300 ms');
});

test('a closed connection gives everything back', async () => {
  const ends = await connectionPair();
  const [device] = ends.devices;
  await Promise.all([ends.a.close(), ends.b.close()]);
  await ends.a.pd.close();
  await device.close();
  await ends[Symbol.asyncDispose]();
});

test('an error that ends a connection early is reported once the program listens', async () => {
  const hub = new MemoryHub();
  const [client, server] = [await endOn(await openOn(hub)), await openOn(hub, { seed: 2 })];
  const resources = await allocate(server, { messageBytes: 64 });
  await resources.qp.connect(client.qp.endpoint());
  await client.qp.connect(resources.qp.endpoint());
  client.qp.postSend({ opcode: 'SEND', sgList: client.mr.sge(0, 65) });
  await eventually(() => expect(resources.qp.state).toBe('ERR'));
  await sleep(5);
  const connection = new Connection(server, connectionSettings({ messageBytes: 64 }), resources, peerAt('10.0.0.1'));
  connection.onEstablished();
  const ended = new Promise<boolean>((resolve) => connection.once('end', () => resolve(connection.qp.isClosed)));
  const closed = once(connection, 'close');
  await expect(connection.receive()).rejects.toMatchObject({ status: 'LOC_LEN_ERR' });
  expect(await closed).toMatchObject([{ status: 'LOC_LEN_ERR' }]);
  // The queue pair was still open at `end`, so its counters could be read.
  expect(await ended).toBe(false);
  await client.device.close({ force: true });
  await server.close({ force: true });
});
