#!/usr/bin/env node
/**
 * A counter and a lock on another machine. The server owns 32 bytes and does nothing: its card adds and compares for the
 * clients, one step at a time, whoever asks.
 *
 *     | counter: 8 | lock: 8 | sum under the lock: 8 | turns under the lock: 8 |
 *
 * FETCH_ADD is all that a counter needs. What takes more than one step - here a sum that is read, changed and written back -
 * needs the lock: a client has it when COMPARE_SWAP has turned 0 into the client's number.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: counter.js serve [options]           owns the counter; Ctrl-C ends it
       counter.js count HOST [options]      adds to it, and to a sum under a lock
       counter.js --demo
${COMMON_HELP}  --times N              how often a client counts; default 1000
`;

const BYTES = 32;
const COUNTER = 0;
const LOCK = 8;
const SUM = 16;

/** Owns the memory. @returns what the clients have left in it, once the server is closed */
async function serve(device, server) {
  const pd = await device.allocPd();
  const memory = await pd.regMr(BYTES);
  for await (const request of server) void welcome(request, memory).catch((error) => console.error(error.message));
  return read(memory.buffer);
}

async function welcome(request, memory) {
  const connection = await request.accept();
  // a region of its own for each client, over the same memory: its key dies with the connection
  const shared = await connection.share(memory, ['localWrite', 'remoteRead', 'remoteWrite', 'remoteAtomic']);
  // the number that the client locks with
  const owner = randomBytes(8).readBigUInt64LE() | 1n;
  connection.once('close', () => unlockFor(owner, memory));
  await connection.send(Buffer.from(JSON.stringify({ remote: shared.remote, owner: String(owner) })));
}

/** A client that vanished may have had the lock. The server's own program is one more party, so it compares and swaps, too. */
function unlockFor(owner, memory) {
  if (memory.isClosed) return;
  const { buffer } = memory;
  const words = new BigUint64Array(buffer.buffer, buffer.byteOffset, BYTES / 8);
  if (Atomics.compareExchange(words, LOCK / 8, owner, 0n) === owner) console.error('a client left with the lock');
}

function read(bytes) {
  const [counter, lock, sum, turns] = [0, 8, 16, 24].map((at) => Number(bytes.readBigUInt64LE(at)));
  return { counter, lock, sum, turns };
}

/** Counts. @returns the state at the end, and how often the lock was another's */
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

/** @returns how often it was another's */
async function lock(connection, remote, owner) {
  for (let waits = 0; ; waits++) {
    if ((await connection.compareSwap(remote, 0n, owner, { offset: LOCK })) === 0n) return waits;
    // who waits longer and by chance lets the others through
    await sleep(Math.random() * Math.min(waits, 10));
  }
}

async function main([what, host], values) {
  const port = Number(values.port);
  if (what === 'serve') await serving(await deviceFor(values), port);
  else if (what === 'count' && host !== undefined) await counting(await deviceFor(values, host), host, port, values);
  else throw new UsageError('what to do? serve, or count HOST');
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

/** Three clients at once: nothing is counted twice, and nothing is lost. */
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
  if (counter !== wanted.counter || sum !== wanted.sum || turns !== wanted.turns) throw new Error('it was miscounted');
}

await run({ help: HELP, options: { times: { type: 'string', default: '1000' } }, main, demo });
