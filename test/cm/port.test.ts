/** Queue pair 1 of a device: many messages at once, several addresses, and what Wireshark makes of them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type CmId, createCmId } from '../../src/cm/index.js';
import { CmPort } from '../../src/cm/port.js';
import { MemoryHub, type Mr, type VerbsError } from '../../src/index.js';
import { describeIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { openOn } from '../verbs/pair.js';
import { Pair } from './sides.js';

/** Takes all requests until the listener is closed. */
async function serve(pair: Pair, listener: CmId, served: CmId[]): Promise<void> {
  for await (const event of listener.channel) {
    if (event.type !== 'CONNECT_REQUEST') continue;
    served.push(event.id);
    await event.id.createQp(pair.server.pd, { sendCq: pair.server.cq, maxSendWr: 1, maxRecvWr: 1 });
    void event.id.accept();
  }
}

test('hundreds connect at once, and nothing is lost in anybody’s queue', async () => {
  const count = 300;
  const pair = await Pair.open({ memoryBytes: 64 * 2 ** 20 });
  const listener = await pair.listen({}, count);
  const served: CmId[] = [];
  const serving = serve(pair, listener, served);
  const clients = await Promise.all(Array.from({ length: count }, () => pair.resolved()));
  await Promise.all(clients.map(({ id }) => id.connect()));
  const port = await CmPort.of(pair.client.device);
  expect(port.counters()).toMatchObject({ 'cm_tx_msgs.req': count, 'cm_tx_msgs.rtu': count });
  expect(served.length).toBe(count);
  expect(new Set(clients.map(({ id }) => id.localAddress?.port)).size).toBe(count);
  await Promise.all(clients.map(({ id }) => id.disconnect()));
  // peers have room for some hundreds of messages: they must not come all at once
  for (const { device } of [pair.client, pair.server])
    expect(device.counters()).toMatchObject({ drop_no_receive: 0, 'link.rx_dropped': 0 });
  listener.channel.close();
  await serving;
  await pair[Symbol.asyncDispose]();
});

test('queue pair 1 is there once it is needed, and gone with the device', async () => {
  const pair = await Pair.open();
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
  // closes without force: the manager is nobody's business
  await device.close();
  await pair[Symbol.asyncDispose]();
});

test('is tried anew when the card was short of memory, and nothing is left of what failed', async () => {
  const device = await openOn(new MemoryHub(), { memoryBytes: 8 * 2 ** 20 });
  const pd = await device.allocPd();
  const fillers: Mr[] = [];
  const fill = async () => {
    for (;;) fillers.push(await pd.regMr(8192));
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
  // for the completion queue, the memory, the queue pair
  expect(refused.size).toBe(3);
  expect(device.qps().map(({ qpNum }) => qpNum)).toEqual([1]);
  await device.close({ force: true });
  expect(device.isClosed).toBe(true);
});

test('no program gets it', async () => {
  const pair = await Pair.open();
  const { pd, cq } = pair.client;
  await expect(pd.createQp({ sendCq: cq, type: 'GSI' as 'UD' })).rejects.toThrow(
    "type is 'GSI', must be 'RC', 'UC' or 'UD'",
  );
  await pair[Symbol.asyncDispose]();
});

describeIf(tsharkPrivilege(), 'what Wireshark sees', () => {
  test('messages that it knows, with our fields in their places', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'cm-'));
    const pcap = join(folder, 'cm.pcapng');
    try {
      const pair = await Pair.open({ pcap });
      const { client } = await pair.connected({ tos: 0x10 }, { connect: { initiatorDepth: 3, responderResources: 5 } });
      await client.id.disconnect();
      const refused = await pair.resolved({ qpType: 'UC' });
      await refused.id.connect().catch(() => {});
      const listener = await pair.listen({ space: 'UDP' });
      const service = await pair.resolved({ space: 'UDP' });
      const asked = service.id.connect();
      await (await listener.getRequest()).accept({ qpNum: 5 });
      await asked;
      const { port } = client.id.localAddress ?? {};
      await pair[Symbol.asyncDispose]();
      expect(await tsharkMalformed(pcap)).toEqual([]);
      const columns = [
        'infiniband.mad.attributeid',
        'infiniband.bth.destqp',
        'infiniband.deth.q_key',
        'infiniband.deth.srcqp',
      ];
      const seen = await tsharkFields(pcap, columns, 'infiniband.mad');
      expect(seen.every(([, ...rest]) => rest.join() === '0x000001,0x0000000080010000,0x00000001')).toBe(true);
      const names = ['0x0010', '0x0013', '0x0014', '0x0015', '0x0016', '0x0010', '0x0012', '0x0017', '0x0018'];
      expect(seen.map(([attribute]) => attribute)).toEqual(expect.arrayContaining(names));
      const fields = [
        'req.serviceid.dport',
        'req.responderres',
        'req.initdepth',
        'req.transpsvctype',
        'req.maxcmretr',
        'req.prim_hoplim',
        'req.prim_localacktout',
        'req.ip_cm.sport',
      ].map((name) => `infiniband.cm.${name}`);
      const [req] = await tsharkFields(pcap, fields, 'infiniband.cm.req');
      const sport = `0x${port?.toString(16).padStart(4, '0')}`;
      expect(req).toEqual(['0x1d2f', '0x05', '0x03', '0x00', '0x0f', '0x40', '0x11', sport]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
