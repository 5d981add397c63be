/** Services by rdma_cm: who connects is served by a function until one of the two ends leaves. */
import type { AcceptOptions, Connection, ConnectionRequest, Device, Server } from '../../index.js';
import type { Fields, Log } from './log.js';
import { GRACE_MS, type Service } from './service.js';

export interface Work {
  readonly accept: AcceptOptions;
  /** Serves one connection. Resolves when its messages have come to their end; what it throws ends the connection. */
  serve(connection: Connection): Promise<unknown>;
}

export class RdmaService implements Service {
  readonly #connections = new Set<Connection>();
  #isClosing = false;

  /** @throws VerbsError EADDRINUSE */
  static async open(
    device: Device,
    about: Fields & { readonly port: number },
    work: Work,
    log: Log,
  ): Promise<RdmaService> {
    return new RdmaService(await device.listen({ port: about.port }), about, work, log);
  }

  private constructor(
    readonly server: Server,
    readonly about: Fields,
    readonly work: Work,
    readonly log: Log,
  ) {
    void this.#run();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.server.close();
    await Promise.all([...this.#connections].map(part));
  }

  async #run(): Promise<void> {
    for await (const request of this.server) void this.#take(request);
  }

  async #take(request: ConnectionRequest): Promise<void> {
    const who = { ...this.about, peer: request.remoteAddress, peerPort: request.remotePort };
    let connection: Connection;
    try {
      connection = await request.accept(this.work.accept);
    } catch (error) {
      this.log.error('refused', error, who);
      return;
    }
    this.#watch(connection, { ...who, qpn: hex(connection.qp.qpNum) });
    // it came about while those who were there were told goodbye
    if (this.#isClosing) return part(connection);
    await this.work.serve(connection).catch((error) => connection.destroy(error));
  }

  #watch(connection: Connection, who: Fields): void {
    const begin = performance.now();
    let counts: Fields = {};
    this.#connections.add(connection);
    this.log.info('connected', who);
    connection.once('end', () => {
      counts = countsOf(connection.qp.counters());
    });
    connection.once('close', (error) => {
      this.#connections.delete(connection);
      const all = { ...who, seconds: Math.round(performance.now() - begin) / 1000, ...counts };
      if (error) this.log.error('disconnected', error, all);
      else this.log.info('disconnected', all);
    });
  }
}

/** A peer that does not take what was sent to it does not keep us. */
async function part(connection: Connection): Promise<void> {
  const late = setTimeout(() => connection.destroy(), GRACE_MS);
  await connection.close().finally(() => clearTimeout(late));
}

/** What went over a queue pair; what it never did is left out. */
export function countsOf(counters: Readonly<Record<string, number>>): Fields {
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

/** A queue pair's number, as all our commands write it. */
export const hex = (qpn: number) => `0x${qpn.toString(16).padStart(6, '0')}`;
