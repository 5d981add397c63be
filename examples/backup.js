#!/usr/bin/env node
/**
 * Keeps a copy of a file on a disk of another host, by NVMe over RDMA: any target will do, such as
 * `wasm-roce nvme-target` or Linux's nvmet-rdma. The first blocks of the disk have a header with the name of the file;
 * its bytes follow. The header is written last, so an interrupted copy leaves a disk without one.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { connect, createTarget, fileStorage, NVME_PORT } from 'wasm-roce/nvme';
import { COMMON_HELP, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: backup.js save FILE HOST NQN [options]        overwrites the disk
       backup.js restore FOLDER HOST NQN [options]
       backup.js --demo FILE FOLDER                   save FILE and restore it in FOLDER, within this process
${COMMON_HELP.replace('7471', String(NVME_PORT))}  --nsid N               id of the namespace, which is the disk; default 1
`;

/** Bytes before the file, a multiple of every block size. */
const HEAD_BYTES = 4096;
const MAGIC = 'wasm-roce backup';

/** @param {import('wasm-roce/nvme').NvmeNamespace} disk @param {object | undefined} entry undefined: no file */
async function writeHead(disk, entry) {
  const head = Buffer.alloc(HEAD_BYTES);
  if (entry !== undefined) head.write(JSON.stringify({ magic: MAGIC, ...entry }));
  await disk.write(0, head, { durable: true });
}

/** @param {import('wasm-roce/nvme').NvmeNamespace} disk */
async function readHead(disk) {
  const [text] = String(await disk.read(0, HEAD_BYTES)).split('\0');
  try {
    const entry = JSON.parse(text);
    if (entry.magic === MAGIC) return entry;
  } catch {}
  throw new Error(`namespace ${disk.nsid} has no copy of a file`);
}

/** Passes bytes on. @returns {[(source: AsyncIterable<Buffer>) => AsyncGenerator<Buffer>, () => string]} */
function hashing() {
  const hash = createHash('sha256');
  async function* pass(source) {
    for await (const part of source) {
      hash.update(part);
      yield part;
    }
  }
  return [pass, () => hash.digest('hex')];
}

async function save(disk, path) {
  const { size } = await stat(path);
  if (HEAD_BYTES + size > disk.bytes)
    throw new Error(`${path} has ${size} bytes, the disk has room for ${disk.bytes - HEAD_BYTES}`);
  await writeHead(disk, undefined);
  const [pass, digest] = hashing();
  // the end of the stream makes the bytes durable
  await pipeline(createReadStream(path), pass, disk.createWriteStream({ start: HEAD_BYTES }));
  const entry = { name: basename(path), size, sha256: digest() };
  await writeHead(disk, entry);
  return entry;
}

async function restore(disk, folder) {
  const { name, size, sha256 } = await readHead(disk);
  const path = join(folder, basename(name));
  const part = `${path}.part`;
  const [pass, digest] = hashing();
  try {
    const whole = Math.ceil(size / disk.blockBytes) * disk.blockBytes;
    const bytes = disk.createReadStream({ start: HEAD_BYTES, end: HEAD_BYTES + whole });
    await pipeline(bytes, (source) => firstOf(source, size), pass, createWriteStream(part));
    const found = digest();
    if (found !== sha256) throw new Error(`${name} has checksum ${found}, must be ${sha256}`);
    await rename(part, path);
    return { path, size, sha256 };
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
}

/** The last block has more bytes than the file. */
async function* firstOf(source, size) {
  let left = size;
  for await (const part of source) {
    yield part.subarray(0, left);
    left -= Math.min(left, part.length);
  }
}

async function withDisk({ device, host, port, nqn, nsid }, use) {
  const controller = await connect({ device, host, port, nqn });
  try {
    return await use(controller.namespace(nsid));
  } finally {
    await controller.close();
  }
}

async function main([what, path, host, nqn], values) {
  const use = { save, restore }[what];
  if (use === undefined || nqn === undefined) throw new UsageError('name save or restore, a path, a host and an NQN');
  const device = await deviceFor(values, host);
  try {
    const where = { device, host, port: Number(values.port), nqn, nsid: Number(values.nsid) };
    console.log(JSON.stringify(await withDisk(where, (disk) => use(disk, path))));
  } finally {
    await device.close();
  }
}

async function demo(values, [path, folder]) {
  if (folder === undefined) throw new UsageError('name a file and a folder');
  const { devices, host } = await demoDevices(2);
  const nqn = 'nqn.2026-01.com.example:demo';
  const own = await mkdtemp(join(tmpdir(), 'backup-'));
  const size = HEAD_BYTES + 4096 * (1 + Math.ceil((await stat(path)).size / 4096));
  const namespaces = [{ storage: await fileStorage(join(own, 'disk.img'), { size }) }];
  const target = await createTarget({ device: devices[0], port: NVME_PORT, subsystems: [{ nqn, namespaces }] });
  try {
    const where = { device: devices[1], host, port: NVME_PORT, nqn, nsid: Number(values.nsid) };
    await withDisk(where, (disk) => save(disk, path));
    console.log(JSON.stringify(await withDisk(where, (disk) => restore(disk, folder))));
  } finally {
    await target.close();
    await rm(own, { recursive: true });
    for (const device of devices) await device.close();
  }
}

const options = { nsid: { type: 'string', default: '1' }, port: { type: 'string', default: String(NVME_PORT) } };
await run({ help: HELP, options, main, demo });
