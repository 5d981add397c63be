// A capture, as tshark reads it.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect } from 'vitest';
import { memoryLink } from '../../src/link/memory/link.js';
import { pcapLink } from '../../src/link/pcap.js';
import { createMemoryHub } from '../../src/verbs/hub.js';
import { testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { Rig, udpFrame } from './rig.js';

const A = '10.0.0.1';
const B = '10.0.0.2';
const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-pcap-'));
afterAll(() => rmSync(folder, { recursive: true }));

testIf(tsharkPrivilege(), 'tshark reads interface, direction, time and comment', async () => {
  const file = join(folder, 'tshark.pcapng');
  const hub = createMemoryHub();
  const link = memoryLink(hub, { addresses: [A], mac: '02:00:00:00:00:01', name: 'mem-a' });
  const a = new Rig(pcapLink(link, file));
  const b = new Rig(memoryLink(hub, { addresses: [B], mac: '02:00:00:00:00:02' }));
  // A SEND ONLY: BTH of 12 bytes, 4 of payload, any ICRC.
  const bth = Buffer.from('0400ffff0000001100000064' + '61626364' + '00000000', 'hex');
  a.put(udpFrame({ source: A, destination: B, payload: bth }));
  a.link.send(1_000_000_123);
  b.put(udpFrame({ source: B, destination: A, destMac: [2, 0, 0, 0, 0, 1], payload: bth }));
  b.link.send(0);
  a.link.receive(1_000_001_124);
  a.link.close();
  const fields = ['frame.interface_name', 'frame.packet_flags_direction', 'frame.time_epoch', 'infiniband.bth.opcode'];
  const rows = await tsharkFields(file, fields);
  expect(rows.map(([name, direction, , opcode]) => [name, direction, opcode])).toEqual([
    ['mem-a', '0x00000002', '4'],
    ['mem-a', '0x00000001', '4'],
  ]);
  const [first, second] = rows.map(([, , time]) => BigInt((time as string).replace('.', ''))) as [bigint, bigint];
  expect(second - first).toBe(1001n);
  expect(await tsharkMalformed(file)).toEqual([]);
  expect(readFileSync(file).includes('wasm-roce, memory link on mem-a')).toBe(true);
});
