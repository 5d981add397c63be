// A service over rdma_cm: what its log says of connections whose handler ends, fails, or is about to send at its close.
import { once } from 'node:events';
import { Writable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { RdmaService } from '../../src/cli/endpoint/listener.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { type Connection, createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';

const PEER = '10.0.0.2';
const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

/** A service with a handler, its log, and a client of it. */
async function open(serve: (connection: Connection) => Promise<unknown>) {
  const hub = createMemoryHub();
  const client = await openDevice({ hub, addresses: ['10.0.0.1'] });
  const server = await openDevice({ hub, addresses: [PEER] });
  devices.push(client, server);
  const lines: string[] = [];
  const stream = new Writable({ write: (line, _, done) => done(void lines.push(`${line}`)) });
  const service = await RdmaService.open(server, { port: 7000 }, { accept: {}, serve }, new Log('text', stream));
  const connection = await client.connect({ host: PEER, port: 7000 });
  const disconnected = () => eventually(() => expect(lines.at(-1)).toMatch('disconnected'));
  return { service, connection, lines, disconnected };
}

test('a handler that sends while its service closes leaves the connection to the close', async () => {
  let refusal: unknown;
  const { service, connection, lines, disconnected } = await open(async (served) => {
    await served.receive();
    void service.close();
    try {
      // the close waits for those that the client has not received
      for (;;) await Promise.race([served.send('more'), setImmediate()]);
    } catch (error) {
      refusal = error;
      throw error;
    }
  });
  await connection.send('begin');
  for await (const { data } of connection) expect(`${data}`).toBe('more');
  await disconnected();
  expect(`${refusal}`).toMatch(/draining/);
  expect(lines.at(-1)).toMatch(/info\s+disconnected/);
  expect(lines.join('')).not.toMatch(/error/);
});

test('a handler that fails ends its connection, and the log has its error', async () => {
  const { connection, lines, disconnected } = await open(async (served) => {
    await served.receive();
    throw new Error('no such order');
  });
  await connection.send('begin');
  await once(connection, 'close');
  await disconnected();
  expect(lines.at(-1)).toMatch(/error\s+disconnected.*no such order/);
});
