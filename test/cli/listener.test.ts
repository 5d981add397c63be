// A service over rdma_cm: its log has the end of each connection, and the handler's error unless the service closes.
import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import type { Connection, Device } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { openService } from './service.js';

const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function open(serve: (connection: Connection) => Promise<unknown>) {
  const { device, peer, lines, ...opened } = await openService({ accept: {}, serve });
  devices.push(device, peer);
  const disconnected = () => eventually(() => expect(lines.at(-1)).toMatch('disconnected'));
  return { ...opened, lines, disconnected };
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
