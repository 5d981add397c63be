/** Queue pair 1 of a device: many messages at once, and its lifetime. */
import { setImmediate as immediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { macText } from '../../src/base/address.js';
import { type CmId, createCmId } from '../../src/cm/index.js';
import { MadAgent } from '../../src/cm/madagent.js';
import { GSI } from '../../src/device/codes.js';
import { type Cq, type Device, MemoryHub, type VerbsError } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { datagram, encodeFrame, flowOf } from '../../src/probe/packet/packets.js';
import { Rig } from '../link/rig.js';
import { openOn } from '../verbs/pair.js';
import { DevicePair, PORT } from './devicepair.js';
import * as mads from './mads.js';

/** Accepts all requests until the listener is closed. */
async function serve(pair: DevicePair, listener: CmId, served: CmId[]): Promise<void> {
  for await (const event of listener.channel) {
    if (event.type !== 'CONNECT_REQUEST') continue;
    served.push(event.id);
    await event.id.createQp(pair.server.pd, { sendCq: pair.server.cq, maxSendWr: 1, maxRecvWr: 1 });
    void event.id.accept();
  }
}

test('hundreds of clients connect at once without a lost message', async () => {
  const count = 300;
  const pair = await DevicePair.open({ memoryBytes: 64 * 2 ** 20 });
  const listener = await pair.listen({}, count);
  const served: CmId[] = [];
  const serving = serve(pair, listener, served);
  const clients = await Promise.all(Array.from({ length: count }, () => pair.resolved()));
  await Promise.all(clients.map(({ id }) => id.connect()));
  const port = await MadAgent.of(pair.client.device);
  expect(port.counters()).toMatchObject({ 'cm_tx_msgs.req': count, 'cm_tx_msgs.rtu': count });
  expect(served.length).toBe(count);
  expect(new Set(clients.map(({ id }) => id.localAddress?.port)).size).toBe(count);
  await Promise.all(clients.map(({ id }) => id.disconnect()));
  // peers have receives for some hundreds of messages, so the messages must be paced
  for (const { device } of [pair.client, pair.server])
    expect(device.counters()).toMatchObject({ drop_no_receive: 0, 'link.rx_dropped': 0 });
  listener.channel.close();
  await serving;
  await pair[Symbol.asyncDispose]();
});

/** Returns what sends requests of hosts to a device, which receives them at once. */
function requests(hub: MemoryHub, device: Device) {
  const rig = new Rig(memoryLink(hub, { addresses: ['10.9.9.9'] }), { slots: 64, slotBytes: 1024 });
  const own = device.gids.find(({ gid }) => gid.startsWith('::ffff:'))?.address as string;
  const to = own.split('.').map(Number);
  const ask = (n: number, host: number, port = PORT) => {
    const there = flowOf({
      srcIp: `10.0.0.${host}`,
      srcMac: `02:00:00:00:01:${host}`,
      dstIp: own,
      dstMac: macText(device.link.interface.mac),
      srcQp: 1,
      destQp: 1,
    });
    const payload = mads.req({ id: n, qpn: n, guid: BigInt(host), port, from: [10, 0, 0, host], to });
    rig.put(encodeFrame(there, datagram.sendOnly({ psn: n, qkey: GSI.qkey, srcQp: 1, payload })));
    rig.link.send(0);
    device.engine.poll();
  };
  return { rig, ask };
}

test('messages that arrive while the program is busy are not lost, and each host’s request is served in its turn', async () => {
  const hub = new MemoryHub();
  const device = await openOn(hub, { memoryBytes: 64 * 2 ** 20, mode: 'inline' });
  const listener = createCmId(device);
  await listener.bindAddr('::', PORT);
  await listener.listen({ backlog: 16 });
  const { rig, ask } = requests(hub, device);
  for (let n = 1; n <= 2600; n++) ask(n, 66);
  ask(3000, 77);
  expect(device.counters()).toMatchObject({ drop_no_receive: 0, 'link.rx_dropped': 0 });
  const next = [await listener.getRequest(), await listener.getRequest()];
  expect(next.map((id) => id.remoteAddress?.address).sort()).toEqual(['10.0.0.66', '10.0.0.77']);
  for (const id of next) await id.close();
  listener.channel.close();
  await device.close({ force: true });
  rig.link.close();
});

test.each([8, 16, 32, 64])('a card of %d MiB has memory for each receive that the agent posts', async (mebibytes) => {
  const hub = new MemoryHub();
  const device = await openOn(hub, { memoryBytes: mebibytes * 2 ** 20, mode: 'inline' });
  const listener = createCmId(device);
  await listener.bindAddr('::', PORT);
  await listener.listen();
  const { rig, ask } = requests(hub, device);
  // more than any queue of receives is long: each of them is used
  for (let n = 1; n <= 4200; n++) {
    ask(n, 66, PORT + 1);
    if (n % 64 === 0) await immediate();
  }
  ask(5000, 77);
  const id = await listener.getRequest({ timeout: 20_000 });
  expect(id.remoteAddress?.address).toBe('10.0.0.77');
  expect(device.stat().qps.map(({ state }) => state)).toEqual(['RTS']);
  await id.close();
  listener.channel.close();
  await device.close({ force: true });
  rig.link.close();
});

test('queue pair 1 is opened with the first id, and closed with the device', async () => {
  const pair = await DevicePair.open();
  const { device } = pair.server;
  const numbers = () => device.stat().qps.map(({ qpNum }) => qpNum);
  expect(numbers()).toEqual([]);
  const listener = await pair.listen();
  expect(numbers()).toEqual([1]);
  await (await pair.listen({ space: 'UDP' })).close();
  await listener.close();
  expect(numbers()).toEqual([1]);
  await pair.server.mr.close();
  await pair.server.cq.close();
  await pair.server.pd.close();
  // closes without force: the MAD agent does not keep the device open
  await device.close();
  await pair[Symbol.asyncDispose]();
});

test('the agent is opened again after a failure for lack of memory, which leaves nothing behind', async () => {
  const device = await openOn(new MemoryHub(), { memoryBytes: 8 * 2 ** 20 });
  // regions would fill memory that stays the application's
  const fillers: Cq[] = [];
  const fill = async () => {
    for (;;) fillers.push(await device.createCq({ cqe: 128 }));
  };
  await fill().catch(() => {});
  const refused = new Set<string>();
  for (const filler of fillers.reverse()) {
    const free = device.card.exports.memAvailable();
    const id = createCmId(device);
    const error: VerbsError | undefined = await id.bindAddr('::').then(
      () => undefined,
      (error) => error,
    );
    await id.close();
    if (error === undefined) break;
    expect(error.code).toBe('ENOMEM');
    refused.add(error.message.replace(/\d+/g, 'n'));
    expect([device.qps().length, device.card.exports.memAvailable()]).toEqual([0, free]);
    await filler.close();
  }
  // one each for the completion queue, the memory region and the queue pair
  expect(refused.size).toBe(3);
  expect(device.qps().map(({ qpNum }) => qpNum)).toEqual([1]);
  await device.close({ force: true });
  expect(device.isClosed).toBe(true);
});

test('a program cannot create queue pair 1', async () => {
  const pair = await DevicePair.open();
  const { pd, cq } = pair.client;
  await expect(pd.createQp({ sendCq: cq, type: 'GSI' as 'UD' })).rejects.toThrow(
    "type is 'GSI', must be 'RC', 'UC' or 'UD'",
  );
  await pair[Symbol.asyncDispose]();
});
