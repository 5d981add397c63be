/** Services over rdma_cm: a handler serves each connection until one of the two ends leaves. */
import { onEachDevice, type ServiceOnDevice, type ServiceOnDevices } from '../../eachdevice.js';
import type { AcceptOptions, Connection, ConnectionRequest, Device, Server } from '../../index.js';
import { qpnText } from '../hex.js';
import type { Fields, Log } from './log.js';
import { GRACE_MS, type Service } from './service.js';

export interface ConnectionHandler {
  readonly accept: AcceptOptions;
  /** Serves one connection until it has no more messages. An error that it throws ends the connection. */
  serve(connection: Connection): Promise<unknown>;
}

export class RdmaService implements Service {
  #devices: ServiceOnDevices | undefined;

  /** @param device the only one; undefined: all interfaces @throws VerbsError EADDRINUSE */
  static async open(
    device: Device | undefined,
    about: Fields & { readonly port: number },
    handler: ConnectionHandler,
    log: Log,
  ): Promise<RdmaService> {
    const service = new RdmaService(about, handler, log);
    service.#devices = await onEachDevice(device, { port: about.port }, async ({ device: on }, { port }) => {
      return new ServiceOn(await on.listen({ port }), service);
    });
    return service;
  }

  private constructor(
    readonly about: Fields,
    readonly handler: ConnectionHandler,
    readonly log: Log,
  ) {}

  async close(): Promise<void> {
    await this.#devices?.close();
  }
}

/** The service on one device. */
class ServiceOn implements ServiceOnDevice {
  readonly #connections = new Set<Connection>();
  #isClosing = false;

  constructor(
    readonly server: Server,
    readonly service: RdmaService,
  ) {
    void this.#run();
  }

  get port(): number {
    return this.server.address.port;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.server.close();
    await Promise.all([...this.#connections].map(closeConnection));
  }

  async #run(): Promise<void> {
    for await (const request of this.server) void this.#accept(request);
  }

  async #accept(request: ConnectionRequest): Promise<void> {
    const fields = { ...this.service.about, peer: request.remoteAddress, peerPort: request.remotePort };
    let connection: Connection;
    try {
      connection = await request.accept(this.service.handler.accept);
    } catch (error) {
      this.service.log.error('refused', error, fields);
      return;
    }
    this.#watch(connection, { ...fields, qpn: qpnText(connection.qp.qpNum) });
    // it was accepted while the others were being closed
    if (this.#isClosing) return closeConnection(connection);
    await this.service.handler.serve(connection).catch((error) => {
      // a handler that is about to send when the service closes is refused
      if (!this.#isClosing) connection.destroy(error);
    });
  }

  #watch(connection: Connection, fields: Fields): void {
    const begin = performance.now();
    let counts: Fields = {};
    this.#connections.add(connection);
    this.service.log.info('connected', fields);
    connection.once('end', () => {
      counts = trafficCounts(connection.qp.counters());
    });
    connection.once('close', (error) => {
      this.#connections.delete(connection);
      const all = { ...fields, seconds: Math.round(performance.now() - begin) / 1000, ...counts };
      if (error) this.service.log.error('disconnected', error, all);
      else this.service.log.info('disconnected', all);
    });
  }
}

/** Closes a connection. One whose peer does not take what was sent is destroyed after a grace period. */
async function closeConnection(connection: Connection): Promise<void> {
  const late = setTimeout(() => connection.destroy(), GRACE_MS);
  await connection.close().finally(() => clearTimeout(late));
}

/** The traffic of a queue pair, without operations that never happened. */
export function trafficCounts(counters: Readonly<Record<string, number>>): Fields {
  const names = {
    bytesReceived: 'rcvd_bytes',
    bytesSent: 'sent_bytes',
    receives: 'rdma_recvs',
    sends: 'rdma_sends',
    writes: 'rx_write_requests',
    reads: 'rx_read_requests',
    atomics: 'rx_atomic_requests',
    retransmits: 'retransmits',
  };
  const found = Object.entries(names).map(([name, counter]) => [name, counters[counter] ?? 0] as const);
  return Object.fromEntries(found.filter(([name, count]) => count > 0 || name.startsWith('bytes')));
}
