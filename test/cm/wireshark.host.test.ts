// Messages of the connection manager, as Wireshark decodes them.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { DevicePair } from './devicepair.js';

testIf(tsharkPrivilege(), 'messages that it knows, with our fields in their places', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'cm-'));
  const pcap = join(folder, 'cm.pcapng');
  try {
    const pair = await DevicePair.open({ pcap });
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
