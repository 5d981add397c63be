// Limits of the cost of strangers for a program of the command line: memory, sessions and files.
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { PerftestService } from '../../src/cli/endpoint/perftest.js';
import { openRegion } from '../../src/cli/endpoint/regions.js';
import { Handshake } from '../../src/cli/perftest/communication/handshake.js';
import { TEXT_KEYS } from '../../src/cli/perftest/communication/keys.js';
import { TcpChannel } from '../../src/cli/tcpchannel.js';
import type { Device, Pd } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';

const HOST = '127.0.0.1';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

test('a peer that sends without end is disconnected, and little of its data is kept', async () => {
  const server = createServer().listen(0, HOST);
  ends.push(() => server.close());
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, HOST).on('error', () => {});
  ends.push(() => client.destroy());
  const [socket] = (await once(server, 'connection')) as [Socket];
  const channel = new TcpChannel(socket, 10_000);
  client.write(Buffer.alloc(64 * 2 ** 20));
  await expect(channel.read(10_000_000, 'the hello')).rejects.toThrow(/4096 bytes that nobody asked for/);
  expect(socket.bytesRead).toBeLessThan(2 ** 20);
});

test('a peer of perftest cannot ask for buffers of any size', async () => {
  const said = [Buffer.from('6.24\0'.padEnd(16, '\0')), Buffer.alloc(4)];
  said[1]?.writeInt32BE(2 ** 30);
  const channel = { write() {}, read: async () => said.shift() as Buffer };
  const handshake = new Handshake(channel as unknown as TcpChannel, 'client', TEXT_KEYS);
  await expect(handshake.negotiate(1024)).rejects.toThrow(
    "the peer's cycle buffer has 1073741824 bytes, must have at most 65536",
  );
});

test('silent clients make room for later ones', async () => {
  const probe = createServer().listen(0, HOST);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const device = { queryPort: () => ({ activeMtu: 1024 }) } as unknown as Device;
  const log = { info() {}, error() {} } as unknown as Parameters<typeof PerftestService.open>[3];
  const service = await PerftestService.open(device, { type: 'write-bw', port, qps: 1 } as never, HOST, log);
  ends.push(() => service.close());
  const clients: Socket[] = [];
  let closed = 0;
  for (let i = 0; i < 40; i++) {
    const client = connect(port, HOST)
      .on('error', () => {})
      .on('close', () => closed++);
    clients.push(client);
    ends.push(() => client.destroy());
    await once(client, 'connect');
  }
  await eventually(() => expect(closed).toBe(8));
  expect(clients.map(({ destroyed }) => destroyed).indexOf(false)).toBe(8);
});

test('a region is never saved through a symbolic link that another user has prepared', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-region-'));
  ends.push(() => rmSync(folder, { recursive: true }));
  const [file, victim] = [join(folder, 'region'), join(folder, 'victim')];
  writeFileSync(victim, 'as it was');
  symlinkSync(victim, join(folder, `.region.${process.pid}`));
  const pd = { regMr: async (bytes: number) => ({ buffer: Buffer.alloc(bytes, 1) }) } as unknown as Pd;
  const region = await openRegion(pd, 'r', { file, persist: true, size: 8, access: [] } as never);
  expect(await region.save()).toBe(true);
  expect(readFileSync(victim, 'utf8')).toBe('as it was');
  expect(readFileSync(file)).toEqual(Buffer.alloc(8, 1));
});
