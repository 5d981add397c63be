// The connections of one address leave memory for those of others.
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Device, VerbsError } from '../../../src/index.js';
import { connect, createServer, type Server, type Socket } from '../../../src/net.js';
import * as valkey from '../../../src/valkey.js';
import { device, HOST, openAt, peer, useDevices } from '../devices.js';

useDevices();

let other: Device;
let server: Server | valkey.ValkeyServer;
const sockets: Socket[] = [];

beforeEach(async () => {
  other = await openAt('10.0.0.3');
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server[Symbol.asyncDispose]();
  await other.close({ force: true });
});

test.each([
  ['net', createServer, connect],
  ['valkey', valkey.createServer, valkey.connect],
] as const)(
  '%s: an honest client is served, however many connections another address opens',
  async (_, create, open) => {
    const drops: (string | undefined)[] = [];
    server = create({ device: peer, receiveBytes: 2 ** 20 }, (socket) => {
      socket.on('error', () => {});
      socket.pipe(socket);
    });
    server.on('drop', ({ remoteAddress }) => drops.push(remoteAddress));
    await once(server.listen(7000), 'listening');
    const before = peer.query().memoryAvailable;
    let established = 0;
    const opened = Array.from({ length: 400 }, async () => {
      const socket = open({ device, host: HOST, port: 7000, receiveBytes: 65_536, sendBytes: 65_536 });
      sockets.push(socket as Socket);
      socket.on('connect', () => established++);
      await once(socket, 'close').catch(() => {});
    });
    const ended = Promise.race(opened.slice(-1));
    for (let n = 0; n < 3; n++) {
      const socket = open({ device: other, host: HOST, port: 7000 });
      socket.write('hello');
      expect(`${(await once(socket, 'data'))[0]}`).toBe('hello');
      socket.destroy();
      await once(socket, 'close');
    }
    await ended;
    expect(established).toBeGreaterThan(5);
    expect(drops.length).toBeGreaterThan(0);
    expect(new Set(drops)).toEqual(new Set(['10.0.0.1']));
    expect(peer.query().memoryAvailable).toBeGreaterThan(before / 4);
  },
);

test('a server without memory refuses with NO_RESOURCES, emits drop, and says so to the client', async () => {
  server = createServer({ device: peer }, () => expect.unreachable());
  await once(server.listen(7000), 'listening');
  peer.allocPd = () => Promise.reject(new VerbsError('ENOMEM', 'no memory is left'));
  const drop = once(server, 'drop');
  const refused = connect({ device, host: HOST, port: 7000 });
  const [error] = await once(refused, 'error');
  expect(error).toMatchObject({ code: 'ECONNREFUSED', cause: { reason: 'NO_RESOURCES' } });
  expect((await drop)[0]).toMatchObject({ localAddress: HOST, localPort: 7000, remoteAddress: '10.0.0.1' });
  device.allocPd = peer.allocPd;
  const [own] = await once(connect({ device, host: HOST, port: 7000 }), 'error');
  expect(own.message).toMatch(/^connect ENOMEM 10\.0\.0\.2:7000 - no memory is left \(memoryBytes /);
});
