#!/usr/bin/env node
/**
 * A key-value store whose GET costs the server's program nothing. The hash table (keyvalue/table.js) is in memory that
 * clients may read: GET is an RDMA READ, which the server's card answers while the program sleeps. PUT and DELETE are
 * messages, so that only the server's program writes the table.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RemoteTable, SLOT_BYTES, Table } from './keyvalue/table.js';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: keyvalue.js serve [options]               own the table until Ctrl-C
       keyvalue.js HOST put KEY VALUE [options]
       keyvalue.js HOST get KEY [options]         print the value; status 1 if there is none
       keyvalue.js HOST delete KEY [options]
       keyvalue.js HOST load N [options]          put N keys, get them all, and print the rate
       keyvalue.js --demo
${COMMON_HELP}  --slots N              slots of the table, ${SLOT_BYTES} bytes each; default 4096
`;

/** Serves clients until the server is closed. @returns the number of messages that the program has handled */
async function serve(device, server, slots) {
  const pd = await device.allocPd();
  const memory = await pd.regMr(slots * SLOT_BYTES);
  const table = new Table(memory.buffer);
  const handled = { put: 0, delete: 0 };
  for await (const request of server)
    void welcome(request, memory, table, handled).catch((error) => console.error(error.message));
  return handled;
}

async function welcome(request, memory, table, handled) {
  const connection = await request.accept();
  const shared = await connection.share(memory, ['localWrite', 'remoteRead']);
  await connection.send(Buffer.from(JSON.stringify({ remote: shared.remote, slots: table.slots })));
  for await (const { data } of connection) {
    const { what, key, value } = JSON.parse(data);
    handled[what]++;
    await connection.send(Buffer.from(JSON.stringify(answer(table, what, key, value))));
  }
}

function answer(table, what, key, value) {
  try {
    if (what === 'put') table.put(key, Buffer.from(value, 'base64'));
    return { ok: what === 'put' || table.delete(key) };
  } catch (error) {
    return { error: error.message };
  }
}

/** A client: `get` is an RDMA READ, `put` and `delete` are messages, sent one after another. */
class Store {
  static async connect(device, host, port) {
    const connection = await device.connect({ host, port, timeout: 10_000 });
    const { remote, slots } = JSON.parse((await connection.receive()).data);
    return new Store(connection, remote, slots);
  }

  #last = Promise.resolve();

  constructor(connection, remote, slots) {
    this.connection = connection;
    this.table = new RemoteTable((offset, length) => connection.read(remote, { offset, length }), slots);
  }

  get(key) {
    return this.table.get(key);
  }

  put(key, value) {
    return this.#ask({ what: 'put', key, value: Buffer.from(value).toString('base64') });
  }

  delete(key) {
    return this.#ask({ what: 'delete', key });
  }

  close() {
    return this.connection.close();
  }

  /** Sends a request and waits for its answer. @throws Error with the message of the server */
  #ask(question) {
    const asked = this.#last.then(async () => {
      await this.connection.send(Buffer.from(JSON.stringify(question)));
      const message = await this.connection.receive();
      if (message === undefined) throw new Error('the server has closed the connection');
      const { ok, error } = JSON.parse(message.data);
      if (error !== undefined) throw new Error(error);
      return ok;
    });
    this.#last = asked.catch(() => {});
    return asked;
  }
}

async function main([first, what, key, value], values) {
  const port = Number(values.port);
  if (first === 'serve') return serving(await deviceFor(values), port, Number(values.slots));
  if (first === undefined || !['put', 'get', 'delete', 'load'].includes(what) || key === undefined)
    throw new UsageError('expected serve, or HOST and put, get, delete or load');
  const device = await deviceFor(values, first);
  const store = await Store.connect(device, first, port);
  try {
    await use(store, what, key, value ?? '');
  } finally {
    await store.close();
    await device.close({ force: true });
  }
}

async function serving(device, port, slots) {
  const server = await device.listen({ port });
  closeOnInterrupt(server);
  console.error(`the table is on port ${server.address.port}`);
  console.log(JSON.stringify({ messages: await serve(device, server, slots) }));
  await device.close({ force: true });
}

async function use(store, what, key, value) {
  if (what === 'put') await store.put(key, value);
  else if (what === 'delete') console.log((await store.delete(key)) ? 'deleted' : 'was not there');
  else if (what === 'load') await load(store, Number(key));
  else {
    const found = await store.get(key);
    if (found === undefined) throw new Error(`there is no '${key}'`);
    console.log(found.toString());
  }
}

const PARALLEL = 16;

/** Puts keys one by one, then gets and verifies them, several at a time. */
async function load(store, count) {
  for (let i = 0; i < count; i++) await store.put(`key ${i}`, `value of key ${i}`);
  const from = performance.now();
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < count; i = next++) {
      const value = await store.get(`key ${i}`);
      if (value?.toString() !== `value of key ${i}`) throw new Error(`key ${i} is ${value}`);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  const perSecond = Math.round((count * 1000) / (performance.now() - from));
  const { reads, torn } = store.table;
  console.log(JSON.stringify({ gets: count, perSecond, reads, torn }));
}

/** One client keeps changing a key while another gets it, and must always get a complete value. */
async function demo(values) {
  const { devices, host } = await demoDevices(3);
  const [owner, writer, reader] = devices;
  const server = await owner.listen({ port: 7471 });
  const serving = serve(owner, server, Number(values.slots));
  const [writes, reads] = [await Store.connect(writer, host, 7471), await Store.connect(reader, host, 7471)];
  await load(writes, 500);
  let isDone = false;
  const changing = (async () => {
    for (let i = 0; !isDone; i++) await writes.put('changing', `${i % 10}`.repeat(200));
  })();
  while ((await reads.get('changing')) === undefined) await sleep(1);
  for (let i = 0; i < 500; i++) {
    const value = `${await reads.get('changing')}`;
    if (value !== value[0].repeat(200)) throw new Error(`torn value: ${value}`);
  }
  isDone = true;
  await changing;
  await writes.delete('changing');
  if ((await reads.get('changing')) !== undefined) throw new Error('the key is still there after it was deleted');
  await Promise.all([writes.close(), reads.close()]);
  await server.close();
  console.log(JSON.stringify({ messages: await serving, reads: reads.table.reads, torn: reads.table.torn }));
  for (const device of devices) await device.close({ force: true });
}

await run({ help: HELP, options: { slots: { type: 'string', default: '4096' } }, main, demo });
