// Sockets and servers of wasm-roce/valkey, both ends ours, over the memory link.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { UnansweredLimit } from '../../../src/protocols/valkey/unansweredlimit.js';
import { connect, createBridge, createServer, type ValkeyOptions } from '../../../src/valkey.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { take } from './take.js';

useDevices();

const there = (options: ValkeyOptions = {}) => ({ device, host: HOST, ...options });

test.each([
  ['the smallest buffers', { receiveBytes: 65_536, sendBytes: 65_536 }],
  ['default buffers', {}],
])('10 MB arrive there and back: %s', async (_, sizes) => {
  await using server = createServer({ device: peer, ...sizes }, (socket) => socket.pipe(socket));
  await once(server.listen(6379), 'listening');
  const socket = connect(there(sizes));
  const data = randomBytes(10_000_000);
  const received = take(socket, data.length);
  socket.write(data);
  expect((await received).equals(data)).toBe(true);
  socket.end();
  await once(socket, 'close');
});

test('more small messages than the peer has receives arrive', async () => {
  let bytes = 0;
  await using server = createServer({ device: peer }, (socket) => socket.on('data', ({ length }) => (bytes += length)));
  await once(server.listen(6379), 'listening');
  const socket = connect(there());
  await once(socket, 'connect');
  for (let i = 0; i < 10_000; i++) if (!socket.write(`${i % 10}`)) await once(socket, 'drain');
  await eventually(() => expect(bytes).toBe(10_000));
  socket.destroy();
});

test('the peer’s answer after our end arrives, and its disconnect is its end', async () => {
  await using server = createServer({ device: peer }, (socket) => {
    socket.on('data', () => socket.end('goodbye'));
  });
  await once(server.listen(6379), 'listening');
  const socket = connect(there());
  const events: string[] = [];
  for (const event of ['finish', 'end', 'error']) socket.on(event, () => events.push(event));
  socket.end('QUIT');
  expect(`${await buffer(socket)}`).toBe('goodbye');
  if (!socket.closed) await once(socket, 'close');
  expect(events).toEqual(['finish', 'end']);
});

test('buffer sizes out of range are refused', async () => {
  expect(() => connect(there({ receiveBytes: 1000 }))).toThrow(
    /receiveBytes is 1000, must be a multiple of 1 from 65536/,
  );
  await expect(createBridge({ device, sendBytes: 2 ** 25 })).rejects.toThrow(/sendBytes is 33554432/);
});

test('the number of unanswered messages is limited: some at once, then few', async () => {
  const due = vi.fn();
  const limit = new UnansweredLimit(due);
  const send = () => {
    let sent = 0;
    for (; limit.canSend(); sent++) limit.sent();
    return sent;
  };
  expect(send()).toBe(256);
  expect(due).not.toHaveBeenCalled();
  // half of the answers do not show that the peer has taken what crossed them
  limit.heard();
  expect(send()).toBe(0);
  await sleep(20);
  expect([due.mock.calls.length, send()]).toEqual([1, 1]);
  limit.heard();
  limit.heard();
  expect(send()).toBe(255);
  let trickled = 0;
  for (let i = 0; i < 2000; i++) {
    await sleep(20);
    trickled += send();
  }
  expect(trickled).toBe(960 - 256);
  limit.stop();
});
