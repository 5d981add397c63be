#!/usr/bin/env node
/**
 * Serves the files of a folder by calls over RDMA, and fetches them: `list` is a call with JSON, `get` a stream of the
 * file's bytes, which the server reads no faster than the client takes them.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { connect, createServer, RpcError } from 'wasm-roce/rpc';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: rpc.js serve FOLDER [options]
       rpc.js list HOST [options]
       rpc.js get HOST NAME FOLDER [options]
       rpc.js --demo FILE FOLDER          serve the folder of FILE, and get it into FOLDER, within this process
${COMMON_HELP.replace('7471', '7473')}`;

/** Bytes of a message of `get`. */
const PART_BYTES = 256 * 1024;

function serve(device, folder, port) {
  const fileOf = async (name) => {
    // the client's name leads to no other folder
    const path = join(folder, basename(name));
    const found = await stat(path).catch(() => undefined);
    if (!found?.isFile()) throw new RpcError('NOT_FOUND', `there is no file ${JSON.stringify(name)}`);
    return { path, size: found.size };
  };
  return createServer({
    device,
    port,
    methods: {
      async list() {
        const entries = await readdir(folder, { withFileTypes: true });
        const files = entries.filter((entry) => entry.isFile()).map(({ name }) => fileOf(name));
        const sizes = (await Promise.all(files)).map(({ path, size }) => [basename(path), size]);
        return Buffer.from(JSON.stringify(Object.fromEntries(sizes)));
      },
    },
    streams: {
      async get(stream, { signal }) {
        const { path } = await fileOf(String(await stream.read()));
        for await (const part of createReadStream(path, { highWaterMark: PART_BYTES, signal }))
          await stream.write(part);
      },
    },
    onError: (error, { address }) => console.error(`${address}: ${error.message}`),
  });
}

/** @param {import('wasm-roce/rpc').RpcClient} client */
async function get(client, name, folder) {
  const path = join(folder, basename(name));
  const stream = client.stream('get');
  await stream.write(Buffer.from(name));
  const hash = createHash('sha256');
  let size = 0;
  async function* pass() {
    for await (const part of stream) {
      hash.update(part);
      size += part.length;
      yield part;
    }
  }
  try {
    await pipeline(pass, createWriteStream(`${path}.part`));
    await rename(`${path}.part`, path);
  } catch (error) {
    stream.cancel();
    await rm(`${path}.part`, { force: true });
    throw error;
  }
  return { path, size, sha256: hash.digest('hex') };
}

async function main([what, ...words], values) {
  if (what === 'serve' && words.length === 1) {
    const device = await deviceFor(values);
    const server = await serve(device, words[0], Number(values.port));
    console.error(`serving on port ${server.port}`);
    await new Promise((resolve) => closeOnInterrupt({ close: resolve }));
    await server.close();
    await device.close();
    return;
  }
  const [host, name, folder] = words;
  const isUsed = (what === 'list' && words.length === 1) || (what === 'get' && words.length === 3);
  if (!isUsed) throw new UsageError('serve, list or get');
  const device = await deviceFor(values, host);
  try {
    const client = await connect({ device, host, port: Number(values.port) });
    const list = async () => JSON.parse(String(await client.call('list', Buffer.alloc(0), { timeout: 10_000 })));
    console.log(JSON.stringify(what === 'list' ? await list() : await get(client, name, folder)));
    await client.close();
  } finally {
    await device.close({ force: true });
  }
}

async function demo(values, [path, folder]) {
  if (folder === undefined) throw new UsageError('name a file and a folder');
  const { devices, host } = await demoDevices(2);
  const server = await serve(devices[0], join(path, '..'), Number(values.port));
  const client = await connect({ device: devices[1], host, port: Number(values.port) });
  console.log(JSON.stringify(await get(client, basename(path), folder)));
  await client.close();
  await server.close();
  for (const device of devices) await device.close();
}

await run({ help: HELP, options: { port: { type: 'string', default: '7473' } }, main, demo });
