#!/usr/bin/env node
/**
 * A counter and a lock on another host. The server owns 32 bytes and does nothing: its card executes the atomics of all
 * clients, one at a time.
 *
 *     | counter: 8 | lock: 8 | sum under the lock: 8 | turns under the lock: 8 |
 *
 * FETCH_ADD is enough for a counter. An update of several steps needs the lock: here a sum that is read, changed and
 * written back. A client holds the lock once its COMPARE_SWAP has replaced 0 by the client's number.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: counter.js serve [options]           own the counter until Ctrl-C
       counter.js count HOST [options]      add to it, and to a sum under a lock
       counter.js --demo
${COMMON_HELP}  --times N              number of increments of a client; default 1000
`;

const BYTES = 32;
const COUNTER = 0;
const LOCK = 8;
const SUM = 16;

/** Serves clients until the server is closed. @returns the content of the memory */
async function serve(device, server) {
  const pd = await device.allocPd();
  const memory = await pd.regMr(BYTES);
  for await (const request of server) void welcome(request, memory).catch((error) => console.error(error.message));
  return read(memory.buffer);
}

async function welcome(request, memory) {
  const connection = await request.accept();
  // each client gets its own region over the same memory, whose key is valid as long as the connection
  const shared = await connection.share(memory, ['localWrite', 'remoteRead', 'remoteWrite', 'remoteAtomic']);
  // the number that the client writes into the lock
  const owner = randomBytes(8).readBigUInt64LE() | 1n;
  connection.once('close', () => unlockFor(owner, memory));
  await connection.send(Buffer.from(JSON.stringify({ remote: shared.remote, owner: String(owner) })));
}

/** Releases the lock of a client that has left. The program competes with the clients, so it also uses an atomic. */
function unlockFor(owner, memory) {
  if (memory.isClosed) return;
  const { buffer } = memory;
  const words = new BigUint64Array(buffer.buffer, buffer.byteOffset, BYTES / 8);
  if (Atomics.compareExchange(words, LOCK / 8, owner, 0n) === owner)
    console.error('a client left while it held the lock');
}

function read(bytes) {
  const [counter, lock, sum, turns] = [0, 8, 16, 24].map((at) => Number(bytes.readBigUInt64LE(at)));
  return { counter, lock, sum, turns };
}

/** Counts. @returns the final state, and how often another client held the lock */
async function count(connection, times) {
  const { remote, owner } = JSON.parse((await connection.receive()).data);
  let waits = 0;
  for (let i = 1; i <= times; i++) {
    await connection.fetchAdd(remote, 1n, { offset: COUNTER });
    waits += await lock(connection, remote, BigInt(owner));
    const both = await connection.read(remote, { offset: SUM, length: 16 });
    both.writeBigUInt64LE(both.readBigUInt64LE(0) + BigInt(i), 0);
    both.writeBigUInt64LE(both.readBigUInt64LE(8) + 1n, 8);
    await connection.write(remote, both, { offset: SUM });
    await connection.compareSwap(remote, BigInt(owner), 0n, { offset: LOCK });
  }
  return { ...read(await connection.read(remote)), waits };
}

/** Takes the lock. @returns the number of times that another client held it */
async function lock(connection, remote, owner) {
  for (let waits = 0; ; waits++) {
    if ((await connection.compareSwap(remote, 0n, owner, { offset: LOCK })) === 0n) return waits;
    // wait longer each time, and by a random time, so that other clients make progress
    await sleep(Math.random() * Math.min(waits, 10));
  }
}

async function main([what, host], values) {
  const port = Number(values.port);
  if (what === 'serve') await serving(await deviceFor(values), port);
  else if (what === 'count' && host !== undefined) await counting(await deviceFor(values, host), host, port, values);
  else throw new UsageError('expected serve, or count HOST');
}

async function serving(device, port) {
  const server = await device.listen({ port });
  closeOnInterrupt(server);
  console.error(`the counter is on port ${server.address.port}`);
  console.log(JSON.stringify(await serve(device, server)));
  await device.close({ force: true });
}

async function counting(device, host, port, values) {
  const connection = await device.connect({ host, port, timeout: 10_000 });
  const state = await count(connection, Number(values.times));
  await connection.close();
  await device.close({ force: true });
  console.log(JSON.stringify(state));
}

/** Runs three clients at once. No increment may be lost or counted twice. */
async function demo(values) {
  const { devices, host } = await demoDevices(4);
  const [owner, ...others] = devices;
  const server = await owner.listen({ port: 7471 });
  const result = serve(owner, server);
  await Promise.all(
    others.map(async (device) => {
      const connection = await device.connect({ host, port: 7471 });
      await count(connection, Number(values.times));
      await connection.close();
    }),
  );
  await server.close();
  const { counter, sum, turns } = await result;
  const times = Number(values.times);
  const wanted = { counter: 3 * times, sum: (3 * times * (times + 1)) / 2, turns: 3 * times };
  console.log(JSON.stringify({ counter, sum, turns, wanted }));
  for (const device of devices) await device.close({ force: true });
  if (counter !== wanted.counter || sum !== wanted.sum || turns !== wanted.turns)
    throw new Error('the clients have miscounted');
}

await run({ help: HELP, options: { times: { type: 'string', default: '1000' } }, main, demo });
