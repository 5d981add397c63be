/** Communication over a connection of rdma_cm (`-R` and `-z`). */
import { once } from 'node:events';
import type { Connection, ConnectionOptions, Device, Message, Server } from '../../../index.js';
import { openForHost, openNamed } from '../../device.js';
import { failure } from '../../exit.js';
import type { PerftestOptions } from '../parameters.js';
import { type Channel, type Communication, Handshake, type RunTest } from './handshake.js';
import { BINARY_KEYS } from './keys.js';

/** Options of the connection: each message of the handshake fits into a receive. */
export const CHANNEL_OPTIONS: ConnectionOptions = { messageBytes: 64, receives: 8, sends: 4 };

/** A channel of which each message is a SEND. */
export class RdmaCmChannel implements Channel {
  readonly #connection: Connection;
  readonly #idleMs: number;
  /** The next message, once `hasData` was read. */
  #nextMessage: Promise<Message | undefined> | undefined;
  #hasData = false;

  /** @param idleMs as of `TcpChannel` */
  constructor(connection: Connection, idleMs: number) {
    this.#connection = connection;
    this.#idleMs = idleMs;
  }

  get remoteAddress(): string {
    return this.#connection.remoteAddress;
  }

  get isEnded(): boolean {
    return !this.#connection.isOpen;
  }

  get hasData(): boolean {
    if (this.#nextMessage === undefined) {
      this.#nextMessage = this.#connection.receive();
      this.#nextMessage.catch(() => {}).then(() => (this.#hasData = true));
    }
    return this.#hasData;
  }

  /** Sends a message. A failure also ends the connection, and is reported where the answer is awaited. */
  write(message: Uint8Array): void {
    this.#connection.send(message).catch(() => {});
  }

  async read(count: number, what: string, idleMs = this.#idleMs): Promise<Buffer> {
    const wait = idleMs > 0 ? { timeout: idleMs } : {};
    const message = await (this.#nextMessage ?? this.#connection.receive(wait)).catch((cause: Error) => {
      throw failure(`${what} did not come: ${cause.message}`, { cause });
    });
    this.#nextMessage = undefined;
    this.#hasData = false;
    if (message === undefined) throw failure(`the peer ended the connection before ${what}`, { code: 'ECONNRESET' });
    const { length } = message.data;
    if (length < count)
      throw failure(`${what} should have ${count} bytes, the peer sent ${length}`, { code: 'EPROTO' });
    return message.data.subarray(0, count);
  }

  async shutdown(timeoutMs: number): Promise<void> {
    if (this.isEnded) return;
    await once(this.#connection, 'close', { signal: AbortSignal.timeout(timeoutMs) }).catch(() => {});
  }
}

/** Connects to a server and runs a test. @throws CmError with the reason of a refusal; as `openDevice` */
export async function connectByCm(host: string, options: PerftestOptions, runTest: RunTest): Promise<void> {
  await using device = await openForHost(host, options);
  await connectOn(device, host, options, runTest);
}

/** Serves one client. @param onListening called with the port, in words */
export async function serveByCm(options: PerftestOptions, onListening: (where: string) => void, runTest: RunTest) {
  const { port, address } = options;
  await using device = await openNamed(options);
  await using server = await device.listen({ port, ...(address !== undefined && { host: address }) });
  onListening(`rdma_cm port ${port} of ${device.queryPort().interface}`);
  await serveOn(device, server, options, runTest);
}

/** As `connectByCm`, on a device that is open. */
export async function connectOn(
  device: Device,
  host: string,
  { port, idleMs }: PerftestOptions,
  runTest: RunTest,
): Promise<void> {
  const timeout = idleMs > 0 ? { timeout: idleMs } : {};
  await using connection = await device.connect({ host, port, ...CHANNEL_OPTIONS, ...timeout });
  await runTest(communicationOn(device, connection, 'client', port, idleMs));
}

/** Serves the first client of a server. */
export async function serveOn(
  device: Device,
  server: Server,
  { port, idleMs }: PerftestOptions,
  runTest: RunTest,
): Promise<void> {
  for await (const request of server) {
    // the queue pairs of the test use the same port
    await server.close();
    await using connection = await request.accept(CHANNEL_OPTIONS);
    await runTest(communicationOn(device, connection, 'server', port, idleMs));
  }
}

function communicationOn(
  device: Device,
  connection: Connection,
  role: Handshake['role'],
  port: number,
  idleMs: number,
): Communication {
  const channel = new RdmaCmChannel(connection, idleMs);
  return {
    device,
    handshake: new Handshake(channel, role, BINARY_KEYS),
    peer: { address: channel.remoteAddress, port },
  };
}
