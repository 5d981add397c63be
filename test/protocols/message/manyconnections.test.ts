// A thousand connections between two devices at once: what they cost while idle; closing them frees everything.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { MadAgent } from '../../../src/cm/madagent.js';
import { type Connection, type Device, MemoryHub } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { openOn } from '../../verbs/pair.js';

const COUNT = 1000;
const PORT = 7471;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Bytes of the heap that are in use. */
function heapUsed(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** Resources of a device that connections use. */
async function held(device: Device) {
  const { core } = await MadAgent.of(device);
  return {
    qps: device.qps().length,
    memory: device.card.exports.memAvailable(),
    connections: core.size,
    deadline: core.nextDeadline(),
  };
}

/** Number of active timers of the process. */
const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

test('a thousand connections at once leave nothing', async () => {
  const hub = new MemoryHub();
  const open = { memoryBytes: 2 ** 26 };
  await using a = await openOn(hub, open);
  await using b = await openOn(hub, { ...open, seed: 2 });
  const server = await b.listen({ port: PORT, backlog: COUNT });
  const answering: Promise<void>[] = [];
  const serving = (async () => {
    for await (const request of server) answering.push(request.accept().then(echo));
  })();
  const host = b.gids[0]?.address as string;
  const connected = (count: number) =>
    Promise.all(Array.from({ length: count }, () => a.connect({ host, port: PORT })));
  const both = () => Promise.all([a, b].map(held));

  // Resources created with the first connection are kept.
  await Promise.all((await connected(1)).map((connection) => connection.close()));
  await eventually(async () => expect((await both()).map(({ connections }) => connections)).toEqual([0, 0]));
  const [before, timersBefore, heapBefore] = [await both(), timers(), heapUsed()];

  const all = await connected(COUNT);
  // Idle: the queue pair with its queue, and a share of the receive buffers, which are an eighth of the memory.
  const shared = 2 ** 26 / 8;
  for (const [i, { memory }] of (await both()).entries())
    expect(((before[i]?.memory as number) - memory - shared) / COUNT).toBeLessThan(8192);
  expect((heapUsed() - heapBefore) / (2 * COUNT)).toBeLessThan(24_576);
  await Promise.all(all.map((connection, i) => askFor(connection, i)));
  expect((await both()).map(({ qps, connections }) => [qps, connections])).toEqual([
    [COUNT + 1, COUNT],
    [COUNT + 1, COUNT],
  ]);
  await Promise.all(all.map((connection) => connection.close()));
  await Promise.all(answering);
  // Of one connection more is kept for the next than of a thousand, whose buffers are more than a 64th of the memory.
  await eventually(async () => {
    for (const [i, { memory, ...others }] of (await both()).entries()) {
      expect({ ...others, memory: before[i]?.memory }).toEqual(before[i]);
      expect(memory).toBeGreaterThanOrEqual(before[i]?.memory as number);
    }
  });
  // vitest may have had one that has expired meanwhile; the devices have one each until they have reported their drops
  await eventually(() => expect(timers()).toBeLessThanOrEqual(timersBefore));
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
