#!/usr/bin/env node
/**
 * Copies a file by RDMA WRITE with immediate data. The receiver shares a region of a few slots. The sender writes each
 * piece of the file into a free slot. The immediate data is the number of the slot; it completes a receive, by which
 * the receiver learns of the piece. When the piece is on disk, the receiver returns the slot. Several pieces are in
 * flight at a time, and the memory stays small however long the file is.
 */
import { createHash } from 'node:crypto';
import { open, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { COMMON_HELP, closeOnInterrupt, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: filecopy.js receive FOLDER [options]     receive files until Ctrl-C
       filecopy.js send FILE HOST [options]
       filecopy.js --demo FILE FOLDER            copy within this process
${COMMON_HELP}  --once                 receive: exit after one file, with status 1 if it failed
`;

const PIECE_BYTES = 256 * 1024;
const SLOTS = 8;
/** A copy can begin again, so an end that sends nothing for some seconds is given up (ms). */
const OPTIONS = { keepAlive: 1000, peerTimeout: 4000 };

const json = (value) => Buffer.from(JSON.stringify(value));

/** Returns the next message. @throws when the connection has ended */
async function next(connection) {
  const message = await connection.receive();
  if (message === undefined)
    throw new Error(`${connection.remoteAddress} closed the connection before the copy was complete`);
  return message;
}

/** Receives one file and renames it once it is complete. @returns its path, size and checksum */
async function receive(connection, folder) {
  const { name, size } = JSON.parse((await next(connection)).data);
  // the sender chooses the name, but not the folder
  const path = join(folder, basename(name));
  const part = `${path}.part`;
  const file = await open(part, 'w');
  try {
    const slots = await connection.share(SLOTS * PIECE_BYTES, ['localWrite', 'remoteWrite']);
    await connection.send(json({ remote: slots.remote, pieceBytes: PIECE_BYTES, slots: SLOTS }));
    const sha256 = await takePieces(connection, slots, file, size);
    const wanted = JSON.parse((await next(connection)).data).sha256;
    if (sha256 !== wanted) throw new Error(`${name} has checksum ${sha256}, must be ${wanted}`);
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

/** Receives the pieces in order, and writes each while the next ones arrive. @returns the checksum */
async function takePieces(connection, slots, file, size) {
  const hash = createHash('sha256');
  const writes = [];
  for (let at = 0; at < size; at += PIECE_BYTES) {
    const { imm: slot } = await next(connection);
    const bytes = Math.min(PIECE_BYTES, size - at);
    const piece = slots.buffer.subarray(slot * PIECE_BYTES, slot * PIECE_BYTES + bytes);
    hash.update(piece);
    const written = file.write(piece, 0, bytes, at).then(() => connection.send(Buffer.alloc(0), { imm: slot }));
    written.catch(() => {});
    writes.push(written);
  }
  await Promise.all(writes);
  return hash.digest('hex');
}

/** Sends one file. @returns its path, size, checksum and seconds */
async function send(connection, path) {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const from = performance.now();
    await connection.send(json({ name: basename(path), size }));
    const { remote, pieceBytes, slots } = JSON.parse((await next(connection)).data);
    const sha256 = await sendPieces(connection, file, size, { remote, pieceBytes, slots });
    await connection.send(json({ sha256 }));
    // skip the slots that are returned: only the last message counts
    while ((await next(connection)).data.length === 0);
    return { path, size, sha256, seconds: (performance.now() - from) / 1000 };
  } finally {
    await file.close();
  }
}

/** Sends the pieces, as slots become free. @returns the checksum */
async function sendPieces(connection, file, size, { remote, pieceBytes, slots }) {
  const hash = createHash('sha256');
  // the file is read into registered memory, from which the card sends it: no copy in between
  const memory = await connection.share(slots * pieceBytes, ['localWrite']);
  const writes = [];
  const free = Array.from({ length: slots }, (_, slot) => slot);
  for (let at = 0; at < size; at += pieceBytes) {
    const slot = free.shift() ?? (await next(connection)).imm;
    const offset = slot * pieceBytes;
    const bytes = Math.min(pieceBytes, size - at);
    await readWhole(file, memory.buffer.subarray(offset, offset + bytes), at);
    hash.update(memory.buffer.subarray(offset, offset + bytes));
    const written = connection.write(remote, memory.sge(offset, bytes), { offset, imm: slot });
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
    if (bytesRead === 0) throw new Error('the file was truncated while it was sent');
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
  else throw new UsageError('expected receive FOLDER, or send FILE HOST');
}

/** Receives one file after another. One that fails is reported and leaves nothing behind. */
async function receiving(device, port, folder, once) {
  if (!(await stat(folder)).isDirectory()) throw new Error(`${folder} is not a folder`);
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
