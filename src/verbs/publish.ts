/**
 * How devices of other processes are watched: each publishes itself as a Unix socket in a folder that only its user may
 * enter. A request is a line, `stat`; its answer is one line of JSON.
 */
import { lstatSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { VerbsError } from '../errors.js';
import { show } from './check.js';
import type { DeviceStat } from './stat.js';

/** A device of some process of this user. */
export interface PublishedDevice extends DeviceStat {
  /** What it was published as; several processes may use one name. */
  readonly name: string;
  readonly pid: number;
}

const REQUEST = 'stat';
/** What a name may be, so that it is a file's name and fits a socket's address. */
const NAME = /^[\w.-]{1,32}$/;
const SUFFIX = '.sock';
/** Bytes of a Unix socket's path (unix(7)), without the final NUL. */
const MOST_PATH = 107;
/** How long a process may take to answer, ms: its event loop may be busy. */
const ANSWER_MS = 1000;
/** A request is short: who sends more is not a friend. */
const MOST_REQUEST = 64;

/** Sockets of this process; a process that ends without closing its devices removes them as well. */
const paths = new Set<string>();
let count = 0;

/** `$XDG_RUNTIME_DIR/wasm-roce`, or without that variable `/tmp/wasm-roce-<user id>`. */
export function runtimeFolder(): string {
  const base = process.env.XDG_RUNTIME_DIR;
  return base ? join(base, 'wasm-roce') : `/tmp/wasm-roce-${process.getuid?.() ?? 0}`;
}

/**
 * Begins to answer.
 * @param name letters, digits, `_`, `-` and `.`, at most 32
 * @returns ends it
 * @throws TypeError for another name; VerbsError EPERM when the folder belongs to others, EIO
 */
export async function publish(name: string, stat: () => DeviceStat): Promise<() => void> {
  if (!NAME.test(name)) throw new TypeError(`publish is ${show(name)}, must be a name of 1 to 32 of A-Z a-z 0-9 _ - .`);
  const folder = ownFolder();
  const path = join(folder, `${name}@${process.pid}.${++count}${SUFFIX}`);
  if (Buffer.byteLength(path) > MOST_PATH)
    throw new VerbsError('EIO', `${path} is longer than the ${MOST_PATH} bytes that a Unix socket's path may have`);
  const asking = new Set<Socket>();
  const server = answering(name, stat, asking);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(new VerbsError('EIO', `the device cannot be published: ${cause.message}`, { cause })),
    );
    server.listen(path, resolve);
  });
  server.unref();
  if (paths.size === 0) process.on('exit', removeAll);
  paths.add(path);
  return () => {
    server.close();
    // their questions come too late
    for (const socket of asking) socket.destroy();
    paths.delete(path);
    rmSync(path, { force: true });
    if (paths.size === 0) process.off('exit', removeAll);
  };
}

/**
 * Asks all devices that this user's processes publish. Sockets that dead processes have left behind are removed.
 * @throws VerbsError EPERM when the folder belongs to others
 */
export async function publishedDevices(): Promise<PublishedDevice[]> {
  const folder = ownFolder();
  const files = readdirSync(folder).filter((file) => file.endsWith(SUFFIX));
  const answers = await Promise.all(files.sort().map((file) => askOne(join(folder, file))));
  return answers.filter((answer) => answer !== undefined);
}

/** @param asking those who are connected */
function answering(name: string, stat: () => DeviceStat, asking: Set<Socket>): Server {
  return createServer((socket) => {
    socket.unref();
    asking.add(socket);
    socket.on('close', () => asking.delete(socket));
    socket.on('error', () => socket.destroy());
    let request = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      request += text;
      const lines = request.split('\n');
      request = lines.pop() as string;
      if (request.length > MOST_REQUEST) socket.destroy();
      for (const line of lines) {
        const answer = line === REQUEST ? { name, pid: process.pid, ...stat() } : { error: 'the only request is stat' };
        socket.write(`${JSON.stringify(answer)}\n`);
      }
    });
  });
}

/** The folder, made if need be. Nobody but this user may look or write there. */
function ownFolder(): string {
  const folder = runtimeFolder();
  try {
    mkdirSync(folder, { mode: 0o700, recursive: true });
  } catch (cause) {
    throw new VerbsError('EPERM', `${folder} cannot be made: ${(cause as Error).message}`, { cause });
  }
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0)
    throw new VerbsError('EPERM', `${folder} must be a folder of this user with mode 700: others could listen there`);
  return folder;
}

/** @returns undefined when nobody answers */
function askOne(path: string): Promise<PublishedDevice | undefined> {
  return new Promise((resolve) => {
    let text = '';
    const socket = connect(path);
    const end = (answer?: PublishedDevice) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(ANSWER_MS, () => end());
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'ECONNREFUSED') rmSync(path, { force: true });
      end();
    });
    socket.on('connect', () => socket.write(`${REQUEST}\n`));
    socket.on('close', () => end());
    socket.setEncoding('utf8').on('data', (part: string) => {
      text += part;
      if (text.includes('\n')) end(JSON.parse(text) as PublishedDevice);
    });
  });
}

function removeAll(): void {
  for (const path of paths) rmSync(path, { force: true });
}
