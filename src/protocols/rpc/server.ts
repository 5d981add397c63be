/** A server: listens, and has a ServedClient for each connection. */

import { type Checks, callable, checkOptions, hostName, integer, object } from '../../base/options.js';
import { Scope } from '../../base/scope.js';
import { Counts, Shares } from '../../base/shares.js';
import { callProgram } from '../../base/uncaught.js';
import { MAX_TIMER_MS } from '../../base/waiting.js';
import { type DeviceUse, openedDevice } from '../../deviceuse.js';
import { onEachDevice, type ServiceAddress, type ServiceOnDevice, type ServiceOnDevices } from '../../eachdevice.js';
import type { Connection, Device } from '../../index.js';
import { memoryShares } from '../../transport/memoryshares.js';
import { CONNECTION_OPTIONS, isOurs } from './channel.js';
import { MAX_MESSAGE_BYTES, RPC_PORT } from './limits.js';
import { type Handlers, type Limits, type MethodHandler, ServedClient, type StreamHandler } from './servedclient.js';
import { checkMethodName } from './wire.js';

/** Options of `createServer`. */
export interface RpcServerOptions {
  /** Device. Default: those that the server opens, one for each interface. */
  readonly device?: Device;
  /** Name or address of ours. Default: all of the device; without a device, those of all interfaces of the host. */
  readonly host?: string;
  /** Port of rdma_cm; 0 = any free port. Default 7473. */
  readonly port?: number;
  /** Methods with one request and one response. */
  readonly methods?: Readonly<Record<string, MethodHandler>>;
  /** Methods with messages in both directions. */
  readonly streams?: Readonly<Record<string, StreamHandler>>;
  /** Longest request, response or message of a stream in bytes, up to 2^30. Default 4 MiB. */
  readonly maxMessageBytes?: number;
  /**
   * Handlers that may run for one client at a time, 1 to 65536, also for calls that it has ended; further calls fail
   * with RESOURCE_EXHAUSTED. A client is an address. Default 1024.
   */
  readonly maxCalls?: number;
  /**
   * Bytes of all requests and unread messages at a time, and 512 for each of them. A client, which is an address, has
   * at most as much as it leaves free: half of it, or less if others have some. A call that exceeds it fails with
   * RESOURCE_EXHAUSTED. Default 256 MiB.
   */
  readonly maxPendingBytes?: number;
  /** As of `device.listen`. Default 75000. */
  readonly peerTimeout?: number;
  /** Called when a client has broken the protocol or is lost. */
  readonly onError?: (error: Error, client: { readonly address: string }) => void;
}

const CHECKS: Checks<RpcServerOptions> = {
  device: openedDevice,
  host: hostName,
  port: integer(0, 65535),
  methods: object,
  streams: object,
  maxMessageBytes: integer(1, 2 ** 30),
  maxCalls: integer(1, 65_536),
  maxPendingBytes: integer(1, Number.MAX_SAFE_INTEGER),
  peerTimeout: integer(0, MAX_TIMER_MS),
  onError: callable,
};

/** Bytes of the device's memory that a connection takes besides its receive buffers, which all share, about. */
const CONNECTION_BYTES = 8192;

/** A server; `createServer` makes it. */
export class RpcServer {
  readonly #options: RpcServerOptions;
  readonly #limits: Omit<Limits, 'memory'>;
  readonly #clients = new Set<ServedClient>();
  /** The devices, with their servers. */
  #devices: ServiceOnDevices | undefined;
  #closed: Promise<void> | undefined;

  private constructor(options: RpcServerOptions) {
    const { methods = {}, streams = {}, maxCalls = 1024, maxPendingBytes = 2 ** 28 } = options;
    const { maxMessageBytes = MAX_MESSAGE_BYTES } = options;
    for (const name of [...Object.keys(methods), ...Object.keys(streams)]) checkMethodName(name);
    this.#options = options;
    this.#limits = { maxMessageBytes, calls: new Counts(maxCalls), pendingBytes: Shares.of(maxPendingBytes) };
  }

  /** @internal */
  static async open(options: RpcServerOptions): Promise<RpcServer> {
    const server = new RpcServer(checkOptions('createServer', options, CHECKS));
    return Scope.open(async (scope) => {
      scope.add(server);
      const { device, host, port = RPC_PORT } = server.#options;
      server.#devices = await onEachDevice(device, { host, port }, (use, at) => server.#listen(use, at));
      return server;
    });
  }

  async #listen({ device }: DeviceUse, { host, port }: ServiceAddress): Promise<ServiceOnDevice> {
    const { peerTimeout } = this.#options;
    const accept = { ...CONNECTION_OPTIONS, ...(peerTimeout !== undefined && { peerTimeout }) };
    const server = await device.listen({ port, ...(host !== undefined && { host }), accept });
    const limits = { ...this.#limits, memory: memoryShares(device) };
    server.on('connection', (connection) => this.#serve(connection, limits));
    return { port: server.address.port, close: () => server.close() };
  }

  /** Port of rdma_cm on which the server listens. */
  get port(): number {
    return this.#devices?.port as number;
  }

  /** Number of clients that are connected. */
  get clients(): number {
    return this.#clients.size;
  }

  /** Takes no more clients, ends the connections of all, and resolves when everything is freed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    // closed while clients are connected, devices would disconnect them
    await Promise.all((this.#devices?.all() ?? []).map((server) => server.close()));
    await Promise.all([...this.#clients].map((client) => client.close()));
    await this.#devices?.close();
  }

  #serve(connection: Connection, limits: Limits): void {
    if (!isOurs(connection)) {
      connection.destroy();
      return;
    }
    const { memory } = limits;
    const { remoteAddress: address } = connection;
    if (!memory.take(address, CONNECTION_BYTES)) {
      connection.destroy();
      return;
    }
    const { methods = {}, streams = {}, onError } = this.#options;
    const handlers: Handlers = { methods: new Map(Object.entries(methods)), streams: new Map(Object.entries(streams)) };
    const client = new ServedClient(connection, handlers, limits, (error) => {
      this.#clients.delete(client);
      memory.release(address, CONNECTION_BYTES);
      const { cause } = error as { cause?: Error };
      if (cause !== undefined) callProgram(() => onError?.(cause, { address: client.address }), undefined);
    });
    this.#clients.add(client);
  }
}
