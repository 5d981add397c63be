/**
 * Publishes devices to other processes of the same user. Each device listens on a Unix socket in a folder of mode 700.
 * A request is the line `stat`; the response is one line of JSON.
 */
import { readdirSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { parseMessage } from '../../base/message.js';
import { show } from '../../base/options.js';
import { invalidValue, VerbsError } from '../../errors.js';
import { ensureRuntimeFolder } from '../../link/runtimefolder.js';
import { MAX_REPLY, onLines } from './lines.js';
import { type DeviceStat, isDeviceStat } from './stat.js';

/** A device that a process of this user has published, from {@link publishedDevices}. */
export interface PublishedDevice extends DeviceStat {
  /** Name that it was published as; several processes may use the same name. */
  readonly name: string;
  /** Process id of its process. */
  readonly pid: number;
}

const REQUEST = 'stat';
/** Names that are valid as file names and fit a socket address. */
const NAME_PATTERN = /^[\w.-]{1,32}$/;
const SUFFIX = '.sock';
/** Most bytes of a Unix socket's path (unix(7)), without the final NUL. */
const MAX_PATH_BYTES = 107;
/** Time that a process may take to respond (ms); its event loop may be busy. */
const RESPONSE_TIMEOUT_MS = 1000;
/** Most bytes of a request; a client that sends more is disconnected. */
const MAX_REQUEST_BYTES = 64;

/** Socket paths of this process. They are also removed when the process exits without closing its devices. */
const socketPaths = new Set<string>();
let count = 0;

/**
 * Publishes a device.
 * @param name 1 to 32 letters, digits, `_`, `-` and `.`
 * @param stat called for each request
 * @returns function that ends the publication
 * @throws TypeError for another name; VerbsError EPERM when other users can access the folder, EIO when the socket
 * cannot be made
 */
export async function publish(name: string, stat: () => DeviceStat): Promise<() => void> {
  if (!NAME_PATTERN.test(name))
    throw invalidValue(`publish is ${show(name)}, must be 1 to 32 of the characters A-Z a-z 0-9 _ - .`);
  const folder = ensureRuntimeFolder();
  const path = join(folder, `${name}@${process.pid}.${++count}${SUFFIX}`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    throw new VerbsError(
      'EIO',
      `${path} is longer than ${MAX_PATH_BYTES} bytes, the most that a Unix socket's path may have`,
    );
  const clients = new Set<Socket>();
  const server = createStatServer(name, stat, clients);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(new VerbsError('EIO', `the device cannot be published: ${cause.message}`, { cause })),
    );
    server.listen(path, resolve);
  });
  server.unref();
  if (socketPaths.size === 0) process.on('exit', removeSockets);
  socketPaths.add(path);
  return () => {
    server.close();
    // Pending requests are not answered.
    for (const socket of clients) socket.destroy();
    socketPaths.delete(path);
    rmSync(path, { force: true });
    if (socketPaths.size === 0) process.off('exit', removeSockets);
  };
}

/**
 * Returns the state and counters of all devices that processes of this user have published. Sockets of dead processes
 * are removed; processes that do not respond within a second are left out.
 * @throws VerbsError EPERM when other users can access the folder
 */
export async function publishedDevices(): Promise<PublishedDevice[]> {
  const folder = ensureRuntimeFolder();
  const files = readdirSync(folder).filter((file) => file.endsWith(SUFFIX));
  const answers = await Promise.all(files.sort().map((file) => queryDevice(join(folder, file))));
  return answers.filter((answer) => answer !== undefined);
}

/** @param clients connected sockets, kept up to date */
function createStatServer(name: string, stat: () => DeviceStat, clients: Set<Socket>): Server {
  return createServer((socket) => {
    socket.unref();
    clients.add(socket);
    socket.on('close', () => clients.delete(socket));
    socket.on('error', () => socket.destroy());
    onLines(socket, MAX_REQUEST_BYTES, (line) => {
      const answer = line === REQUEST ? { name, pid: process.pid, ...stat() } : { error: 'the only request is stat' };
      socket.write(`${JSON.stringify(answer)}\n`);
    });
  });
}

/** Requests the state of one device. @returns undefined without a response */
function queryDevice(path: string): Promise<PublishedDevice | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const finish = (answer?: PublishedDevice) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(RESPONSE_TIMEOUT_MS, () => finish());
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'ECONNREFUSED') rmSync(path, { force: true });
      finish();
    });
    socket.on('connect', () => socket.write(`${REQUEST}\n`));
    socket.on('close', () => finish());
    onLines(socket, MAX_REPLY, (line) => {
      const answer = parseMessage(line);
      finish(isPublished(answer) ? answer : undefined);
    });
  });
}

const isPublished = (value: unknown): value is PublishedDevice =>
  isDeviceStat(value) &&
  'name' in value &&
  typeof value.name === 'string' &&
  'pid' in value &&
  Number.isInteger(value.pid);

function removeSockets(): void {
  for (const path of socketPaths) rmSync(path, { force: true });
}
