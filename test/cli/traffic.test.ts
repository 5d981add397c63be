// The service `traffic` of an endpoint: it sends what a client orders, and no client can have too much of it.
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { type TrafficOrder, trafficHandler } from '../../src/cli/endpoint/traffic.js';
import type { Connection, Device } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { openService, PEER, PORT } from './service.js';

const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

/** A client of the service with memory, and the log of the service. */
async function open(idleMs?: number) {
  const { device, peer, lines, connection } = await openService(trafficHandler(idleMs));
  devices.push(device, peer);
  const mr = await connection.share(65_536);
  const memory = { addr: Number(mr.remote.addr), rkey: mr.remote.rkey };
  return { connection, mr, memory, peer, lines };
}

const order = (connection: Connection, what: TrafficOrder) => connection.send(JSON.stringify(what));

test('SENDs, WRITEs and READs come in the number and length that was ordered', async () => {
  const { connection, mr, memory } = await open();
  mr.buffer.fill(1);
  await order(connection, { opcode: 'WRITE', length: 5000, count: 3, ...memory });
  await order(connection, { opcode: 'READ', length: 16_384, count: 2, ...memory });
  await order(connection, { opcode: 'SEND', length: 7, count: 100 });
  for (let i = 0; i < 100; i++) expect((await connection.receive())?.data.length).toBe(7);
  expect(mr.buffer.indexOf(1)).toBe(5000);
  expect(connection.qp.counters()).toMatchObject({ rx_write_requests: 3, rx_read_requests: 2 });
  await connection.close();
});

test.each([
  ['no order', /an order of the client has 8 bytes that are no JSON/],
  ['7', /an order of the client is wrong: .*object/],
  ['{"opcode":"SEND","length":16385,"count":1}', /is wrong: length: .*16384/],
  ['{"opcode":"SEND","length":0,"count":0}', /is wrong: count: /],
  ['{"opcode":"SEND","length":0,"count":65537}', /is wrong: count: .*65536/],
  ['{"opcode":"READ","length":8,"count":1,"addr":-1,"rkey":1}', /is wrong: addr: /],
  ['{"opcode":"ATOMIC","length":8,"count":1}', /is wrong: opcode: /],
])('%s ends the connection', async (text, why) => {
  const { connection, lines } = await open();
  await connection.send(text);
  await once(connection, 'close');
  await eventually(() => expect(lines.join('')).toMatch(why));
});

test('a client that orders nothing more is disconnected', async () => {
  const { connection, lines } = await open(1000);
  await order(connection, { opcode: 'SEND', length: 1, count: 1 });
  expect((await connection.receive())?.data.length).toBe(1);
  await once(connection, 'close');
  await eventually(() => expect(lines.join('')).toMatch(/disconnected .*ETIMEDOUT/));
});

test('a client that leaves during a large order, and one without memory, leave nothing behind', async () => {
  const { connection, memory, peer, lines } = await open();
  await order(connection, { opcode: 'WRITE', length: 16_384, count: 65_536, ...memory });
  await eventually(() => expect(connection.qp.counters().rx_write_requests).toBeGreaterThan(0));
  connection.destroy();
  const disconnected = (count: number) =>
    eventually(() => expect(lines.filter((line) => line.includes('disconnected')).length).toBe(count));
  const fail = async () => {
    const next = await (devices[0] as Device).connect({ host: PEER, port: PORT });
    await order(next, { opcode: 'READ', length: 8, count: 65_536, addr: 0, rkey: 1 });
    await once(next, 'close');
  };
  await disconnected(1);
  // The memory of the first READ is kept for others.
  await fail();
  await disconnected(2);
  const { memoryAvailable } = peer.query();
  await fail();
  await eventually(() => expect(peer.query().memoryAvailable).toBe(memoryAvailable));
});
