// A client cannot end the loop of a server, by whatever it sends or leaves out.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { MadAgent } from '../../../src/cm/madagent.js';
import { type Connection, createCmId, type Device, MemoryHub, type Server } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { openOn } from '../../verbs/pair.js';

const PORT = 7471;
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function twoDevices(): Promise<readonly [Device, Device]> {
  const hub = new MemoryHub();
  const pair = [await openOn(hub), await openOn(hub, { seed: 2 })] as const;
  devices.push(...pair);
  return pair;
}

const hostOf = (device: Device) => device.gids[0]?.address as string;

/** The loop of a server that echoes; each connection's end is added to `ends`. */
function echoing(server: Server, ends: string[] = [], options = {}): Promise<void> {
  const echo = async (connection: Connection) => {
    for await (const { data } of connection) await connection.send(data);
    await connection.close();
  };
  return (async () => {
    for await (const request of server) {
      const connection = await request.accept(options);
      echo(connection).then(
        () => ends.push('end'),
        (error) => ends.push(error.status ?? error.code),
      );
    }
  })();
}

async function expectEcho(device: Device, host: string): Promise<void> {
  await using connection = await device.connect({ host, port: PORT });
  await connection.send(Buffer.from('hello'));
  expect((await connection.receive({ timeout: 20_000 }))?.data.toString()).toBe('hello');
}

/** A client by the verbs, which knows nothing of `messageBytes`. */
async function stockClient(device: Device, host: string, privateData = Buffer.alloc(0)) {
  const id = createCmId(device, { minRnrTimer: 12 });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const mr = await pd.regMr(65536);
  await id.resolveAddr(host, PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq });
  return { id, cq, mr, qp, connected: id.connect({ privateData }) };
}

test('a message that is too long, right after connecting, ends its connection with the error', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const ends: string[] = [];
  const serving = echoing(server, ends);
  for (let i = 0; i < 5; i++) {
    const { qp, mr, cq, connected } = await stockClient(a, hostOf(b));
    await connected;
    qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 20_000) });
    expect((await cq.next()).statusName).toBe('REM_INV_REQ_ERR');
  }
  await eventually(() => expect(ends).toEqual(Array(5).fill('LOC_LEN_ERR')));
  await expectEcho(a, hostOf(b));
  await server.close();
  await serving;
});

test('both ends of this project refuse a message that is too long for the peer', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const accepting = server.next().then((request) => request?.accept({ messageBytes: 1000 }));
  const client = await a.connect({ host: hostOf(b), port: PORT, messageBytes: 65536 });
  const served = (await accepting) as Connection;
  expect([client.peerMessageBytes, served.peerMessageBytes]).toEqual([1000, 65536]);
  await expect(client.send(Buffer.alloc(1001))).rejects.toMatchObject({
    code: 'EMSGSIZE',
    message: "EMSGSIZE: the message has 1001 bytes, at most the peer's messageBytes 1000 are allowed",
  });
  const mr = await client.share(4096);
  await expect(client.send(mr.sge(0, 1001))).rejects.toMatchObject({ code: 'EMSGSIZE' });
  await client.send(mr.sge(0, 1000));
  expect((await served.receive())?.data.length).toBe(1000);
  await client.close();
});

test('private data is that of the client, at the request and at the connection', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const connecting = a.connect({ host: hostOf(b), port: PORT, privateData: Buffer.from('knock') });
  const request = await server.next();
  const served = (await request?.accept({ privateData: Buffer.from('come in') })) as Connection;
  const client = await connecting;
  const texts = [request, served, client].map((end) => Buffer.from(end?.privateData as Uint8Array).toString());
  expect(texts).toEqual(['knock', 'knock', 'come in']);
  await client.close();
});

test('private data of a stock client comes with its padding, and our answer is padded, too', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const { connected, id } = await stockClient(a, hostOf(b), Buffer.from('stock'));
  const served = (await (await server.next())?.accept({ privateData: Buffer.from('ours') })) as Connection;
  expect([served.privateData.length, Buffer.from(served.privateData).toString('latin1', 0, 6)]).toEqual([
    56,
    'stock\0',
  ]);
  expect(served.peerMessageBytes).toBeUndefined();
  expect(Buffer.from((await connected).privateData).toString('latin1', 0, 5)).toBe('ours\0');
  await id.close();
});

test.each(['accept', 'reject'] as const)('a client that gives up before %s throws nothing', async (answer) => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const { connected, id } = await stockClient(a, hostOf(b));
  connected.catch(() => {});
  const request = await server.next();
  await id.close();
  await sleep(20);
  const outcome = await request?.[answer]();
  if (outcome !== undefined) await expect(outcome.receive()).rejects.toMatchObject({ code: 'ECONNRESET' });
  await expect(request?.accept()).rejects.toMatchObject({ code: 'EINVAL' });
  void echoing(server);
  await expectEcho(a, hostOf(b));
});

test('requests whose clients give up before they are read are forgotten', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT, backlog: 2 });
  const agent = await MadAgent.of(b);
  for (let i = 0; i < 10; i++) {
    const { connected, id } = await stockClient(a, hostOf(b));
    connected.catch(() => {});
    // a client whose REQ has not left needs no REJ
    await eventually(() => expect(agent.counters()['cm_rx_msgs.req']).toBe(i + 1));
    await id.close();
  }
  await eventually(() => expect(agent.counters()['cm_rx_msgs.rej']).toBe(10));
  await expect(server.next({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
});

test('messages of a server wait until the client is ready', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const connecting = a.connect({ host: hostOf(b), port: PORT });
  const served = (await (await server.next())?.accept()) as Connection;
  const sent = [served.send(Buffer.from('welcome')), served.close()];
  const client = await connecting;
  await Promise.all(sent);
  expect((await client.receive())?.data.toString()).toBe('welcome');
  expect(await client.receive()).toBeUndefined();
});

test('a client for which there is no memory ends its own connection only', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const ends: string[] = [];
  const serving = echoing(server, ends);
  // Leaves memory for two or three queue pairs.
  const first = await a.connect({ host: hostOf(b), port: PORT });
  const pd = await b.allocPd();
  const mr = await pd.regMr(b.card.exports.memAvailable() - 20_000);
  const tried = await Promise.allSettled(
    Array.from({ length: 10 }, () => a.connect({ host: hostOf(b), port: PORT, receives: 8, sends: 1 })),
  );
  expect(new Set(tried.map(({ status }) => status))).toEqual(new Set(['fulfilled', 'rejected']));
  await eventually(() => expect(new Set(ends)).toEqual(new Set(['ENOMEM'])));
  for (const attempt of tried) if (attempt.status === 'fulfilled') await attempt.value.close();
  await first.close();
  await mr.close();
  await eventually(() => expect(b.qps().length).toBe(1));
  await expectEcho(a, hostOf(b));
  await server.close();
  await serving;
});

test('close ends the wait for a client that posts no receives, and reports the loss', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const { connected, id } = await stockClient(a, hostOf(b));
  const served = (await (await server.next())?.accept({ closeTimeout: 30 })) as Connection;
  await connected;
  const ended = new Promise<Error | undefined>((resolve) => served.once('close', resolve));
  const sent = served.send('nobody takes it');
  const closing = served.close();
  const message = expect.stringContaining('acknowledged nothing for 30 ms');
  await Promise.all([
    expect(sent).rejects.toMatchObject({ code: 'ECONNRESET' }),
    expect(closing).rejects.toMatchObject({ code: 'ETIMEDOUT', message }),
  ]);
  expect(await ended).toMatchObject({ code: 'ETIMEDOUT' });
  // It is closed.
  await served.close();
  await id.close();
});

test('close waits as long as the client takes something now and then', async () => {
  const [a, b] = await twoDevices();
  const server = await b.listen({ port: PORT });
  const { connected, mr, qp } = await stockClient(a, hostOf(b));
  const served = (await (await server.next())?.accept({ closeTimeout: 1000 })) as Connection;
  await connected;
  const sent = Array.from({ length: 5 }, () => served.send('x'));
  const closing = served.close();
  for (let i = 0; i < 5; i++) {
    await sleep(300);
    qp.postRecv({ wrId: i, sgList: mr.sge(0, 16384) });
  }
  await Promise.all(sent);
  await closing;
});
