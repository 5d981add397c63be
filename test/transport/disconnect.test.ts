import { expect, test } from 'vitest';
import { createCmId, MemoryHub, type SendWr } from '../../src/index.js';
import { onDeviceFailure, onFatalEvent, untilDisconnected } from '../../src/transport/disconnect.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, openOn } from '../verbs/pair.js';

test.each([
  ['a WRITE with a wrong key', 'QP_ACCESS_ERR', { opcode: 'RDMA_WRITE', remoteAddr: 0, rkey: 1 }],
  ['an atomic at an odd address', 'QP_REQ_ERR', { opcode: 'ATOMIC_FETCH_AND_ADD', remoteAddr: 1, compareAdd: 1n }],
] as const)('%s is a fatal event of the peer’s queue pair, reported once: %s', async (_, type, wr) => {
  await using pair = await connectedPair();
  const errors: string[] = [];
  onFatalEvent(pair.b.qp, ({ message }) => errors.push(message));
  const { rkey } = pair.b.mr.remote;
  pair.a.qp.postSend({ rkey, ...wr, sgList: pair.a.mr.sge(0, 8) } as SendWr);
  const message = `EIO: the peer sent a request that ${pair.b.qp} does not allow (${type})`;
  await eventually(() => expect(errors).toEqual([message]));
});

test('events that leave the queue pair usable are not fatal', async () => {
  await using pair = await connectedPair();
  const errors: Error[] = [];
  onFatalEvent(pair.b.qp, (error) => errors.push(error));
  pair.b.qp.emit('event', { type: 'COMM_EST', qp: pair.b.qp });
  expect(errors).toEqual([]);
});

test('untilDisconnected tells whether the peer or the program ended the connection', async () => {
  const hub = new MemoryHub();
  const [client, server] = [await openOn(hub), await openOn(hub)];
  const listener = createCmId(server);
  await listener.bindAddr('::', 7000);
  await listener.listen();
  const connect = async () => {
    const accepted = listener.getRequest().then(async (request) => {
      await request.createQp(await server.allocPd(), { sendCq: await server.createCq() });
      await request.accept();
      return request;
    });
    const id = createCmId(client);
    await id.resolveAddr(server.gids[0]?.address ?? '', 7000);
    await id.resolveRoute();
    await id.createQp(await client.allocPd(), { sendCq: await client.createCq() });
    await id.connect();
    return { id, accepted: await accepted };
  };
  const [first, second] = [await connect(), await connect()];
  const waits = [untilDisconnected(first.accepted), untilDisconnected(second.accepted)];
  await first.id.disconnect();
  await second.accepted.close();
  expect(await Promise.all(waits)).toEqual([{ hasExited: false }, undefined]);
  await client.close({ force: true });
  await server.close({ force: true });
});

test('onDeviceFailure calls every caller that still waits, by one listener of the device', async () => {
  const device = await openOn(new MemoryHub());
  const before = device.listenerCount('event');
  const errors: string[] = [];
  const waits = ['first', 'second'].map((name) =>
    onDeviceFailure(device, ({ message }) => errors.push(name + message)),
  );
  waits[0]?.();
  expect(device.listenerCount('event') - before).toBe(1);
  device.emit('event', { type: 'DEVICE_FATAL', device, reason: 'test' });
  expect(errors).toEqual(['secondEIO: test']);
  await device.close();
});
