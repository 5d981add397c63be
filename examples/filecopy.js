#!/usr/bin/env node
/**
 * Copies a file by RDMA WRITE. The receiver lends the sender a few places of memory; the sender writes the file's pieces there,
 * each with its place as immediate, and the receiver's card gives the piece and the news in one. A place that has reached
 * the disk is told back, so several pieces are on the way all the time and the memory is small, however long the file.
 */
import { createHash } from 'node:crypto';
import { open, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: filecopy.js receive FOLDER [options]     takes files until Ctrl-C
       filecopy.js send FILE HOST [options]
       filecopy.js --demo FILE FOLDER            a copy within this process
${COMMON_HELP}  --once                 receive: one file, then the end; status 1 when it failed
`;

const PIECE_BYTES = 256 * 1024;
const PLACES = 8;
/** After so much silence (ms) the other end is asked whether it is still there. */
const OPTIONS = { keepAlive: 1000 };

const json = (value) => Buffer.from(JSON.stringify(value));

/** The next message of a connection that is to go on. */
async function next(connection) {
  const message = await connection.receive();
  if (message === undefined) throw new Error(`${connection.remoteAddress} has left before the copy was whole`);
  return message;
}

/** Takes one file. @returns its name, bytes and checksum, once it is whole and has its name */
async function receive(connection, folder) {
  const { name, size } = JSON.parse((await next(connection)).data);
  // the sender chooses the name, not the place
  const path = join(folder, basename(name));
  const part = `${path}.part`;
  const file = await open(part, 'w');
  try {
    const places = await connection.share(PLACES * PIECE_BYTES, ['localWrite', 'remoteWrite']);
    await connection.send(json({ remote: places.remote, pieceBytes: PIECE_BYTES, places: PLACES }));
    const sha256 = await takePieces(connection, places, file, size);
    const wanted = JSON.parse((await next(connection)).data).sha256;
    if (sha256 !== wanted) throw new Error(`${name} came with checksum ${sha256}, which should be ${wanted}`);
    await file.sync();
    await rename(part, path);
    await connection.send(json({ ok: true }));
    return { path, size, sha256 };
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** Pieces come in order; each is written while the next ones come. @returns the checksum */
async function takePieces(connection, places, file, size) {
  const hash = createHash('sha256');
  const writes = [];
  for (let at = 0; at < size; at += PIECE_BYTES) {
    const { imm: place } = await next(connection);
    const bytes = Math.min(PIECE_BYTES, size - at);
    const piece = places.buffer.subarray(place * PIECE_BYTES, place * PIECE_BYTES + bytes);
    hash.update(piece);
    const written = file.write(piece, 0, bytes, at).then(() => connection.send(Buffer.alloc(0), { imm: place }));
    written.catch(() => {});
    writes.push(written);
  }
  await Promise.all(writes);
  return hash.digest('hex');
}

/** Sends one file. @returns its bytes, seconds and checksum */
async function send(connection, path) {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const from = performance.now();
    await connection.send(json({ name: basename(path), size }));
    const { remote, pieceBytes, places } = JSON.parse((await next(connection)).data);
    const sha256 = await sendPieces(connection, file, size, { remote, pieceBytes, places });
    await connection.send(json({ sha256 }));
    // places that are free again come first; nobody needs them
    while ((await next(connection)).data.length === 0);
    return { path, size, sha256, seconds: (performance.now() - from) / 1000 };
  } finally {
    await file.close();
  }
}

/** @returns the checksum */
async function sendPieces(connection, file, size, { remote, pieceBytes, places }) {
  const hash = createHash('sha256');
  // a piece is read from the disk to where our card takes it from: no copy in between
  const memory = await connection.share(places * pieceBytes, ['localWrite']);
  const writes = [];
  const free = Array.from({ length: places }, (_, place) => place);
  for (let at = 0; at < size; at += pieceBytes) {
    const place = free.shift() ?? (await next(connection)).imm;
    const offset = place * pieceBytes;
    const bytes = Math.min(pieceBytes, size - at);
    await readWhole(file, memory.buffer.subarray(offset, offset + bytes), at);
    hash.update(memory.buffer.subarray(offset, offset + bytes));
    const written = connection.write(remote, memory.slice(offset, bytes), { offset, imm: place });
    written.catch(() => {});
    writes.push(written);
    progress(at + bytes, size);
  }
  await Promise.all(writes);
  return hash.digest('hex');
}

async function readWhole(file, buffer, position) {
  for (let done = 0; done < buffer.length; ) {
    const { bytesRead } = await file.read(buffer, done, buffer.length - done, position + done);
    if (bytesRead === 0) throw new Error('the file became shorter while it was sent');
    done += bytesRead;
  }
}

let shown = 0;
function progress(done, size) {
  if (!process.stderr.isTTY || (performance.now() - shown < 100 && done < size)) return;
  shown = performance.now();
  process.stderr.write(`\r${Math.floor((100 * done) / size)} % of ${size} bytes${done < size ? '' : '\n'}`);
}

async function main([what, path, host], values) {
  const port = Number(values.port);
  if (what === 'receive' && path !== undefined) await receiving(await deviceFor(values), port, path, values.once);
  else if (what === 'send' && host !== undefined) await sending(await deviceFor(values, host), host, port, path);
  else throw new UsageError('what to do? receive FOLDER, or send FILE HOST');
}

/** One file after the other. One that fails is told of, and leaves nothing behind. */
async function receiving(device, port, folder, once) {
  if (!(await stat(folder)).isDirectory()) throw new Error(`${folder} is no folder`);
  const server = await device.listen({ port });
  closeOnInterrupt(server);
  console.error(`waiting for files on port ${server.address.port}`);
  let failure;
  for await (const request of server) {
    failure = undefined;
    try {
      console.log(JSON.stringify(await receiveFrom(request, folder)));
    } catch (error) {
      failure = error;
      console.error(error.message.split('\n')[0]);
    }
    if (once) await server.close();
  }
  await device.close({ force: true });
  if (failure && once) process.exitCode = 1;
}

async function receiveFrom(request, folder) {
  const connection = await request.accept(OPTIONS);
  try {
    return await receive(connection, folder);
  } finally {
    await connection.close();
  }
}

async function sending(device, host, port, path) {
  try {
    const connection = await device.connect({ host, port, timeout: 10_000, ...OPTIONS });
    console.log(JSON.stringify(await send(connection, path)));
    await connection.close();
  } finally {
    await device.close({ force: true });
  }
}

async function demo(_values, [file, folder]) {
  if (folder === undefined) throw new UsageError('--demo needs a FILE and a FOLDER');
  const { devices, host } = await demoDevices(2);
  const [receiver, sender] = devices;
  const server = await receiver.listen({ port: 7471 });
  const received = server.next().then((request) => receiveFrom(request, folder));
  await sending(sender, host, 7471, file);
  console.log(JSON.stringify(await received));
  await receiver.close({ force: true });
}

await run({ help: HELP, options: { once: { type: 'boolean' } }, main, demo });
