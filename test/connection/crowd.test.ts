// A thousand connections of two devices at once; and when they are closed, nothing is left of them.
import { expect, test } from 'vitest';
import { CmPort } from '../../src/cm/port.js';
import { type Connection, type ConnectionOptions, type Device, MemoryHub } from '../../src/index.js';
import { openOn } from '../verbs/pair.js';

const COUNT = 1000;
const PORT = 7471;
const SMALL: ConnectionOptions = { messageBytes: 64, receives: 8, sends: 1 };

/** All that a connection takes. */
async function held(device: Device) {
  const { core } = await CmPort.of(device);
  return {
    qps: device.qps().length,
    memory: device.card.exports.memAvailable(),
    connections: core.size,
    deadline: core.nextDeadline(),
  };
}

/** Of the process; while a test polls, one is the poll's. */
const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

test('a thousand at once, and nothing is left', async () => {
  const hub = new MemoryHub();
  const open = { memoryBytes: 2 ** 26 };
  await using a = await openOn(hub, open);
  await using b = await openOn(hub, { ...open, seed: 2 });
  const server = await b.listen({ port: PORT, backlog: COUNT });
  const answering: Promise<void>[] = [];
  const serving = (async () => {
    for await (const request of server) answering.push(request.accept(SMALL).then(echo));
  })();
  const host = b.gids[0]?.address as string;
  const connected = (count: number) =>
    Promise.all(Array.from({ length: count }, () => a.connect({ host, port: PORT, ...SMALL })));
  const both = () => Promise.all([a, b].map(held));

  // what is made with the first connection stays
  await Promise.all((await connected(1)).map((connection) => connection.close()));
  await expect
    .poll(async () => (await both()).map(({ connections }) => connections), { timeout: 10_000 })
    .toEqual([0, 0]);
  const [before, timersBefore] = [await both(), timers()];

  const all = await connected(COUNT);
  await Promise.all(all.map((connection, i) => askFor(connection, i)));
  expect((await both()).map(({ qps, connections }) => [qps, connections])).toEqual([
    [COUNT + 1, COUNT],
    [COUNT + 1, COUNT],
  ]);
  await Promise.all(all.map((connection) => connection.close()));
  await Promise.all(answering);
  await expect.poll(both, { timeout: 10_000 }).toEqual(before);
  expect(timers()).toBe(timersBefore);
  await server.close();
  await serving;
});

async function echo(connection: Connection): Promise<void> {
  for await (const { data } of connection) await connection.send(data);
  await connection.close();
}

async function askFor(connection: Connection, number: number): Promise<void> {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(number);
  await connection.send(bytes);
  expect((await connection.receive())?.data).toEqual(bytes);
}
