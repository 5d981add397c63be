/** A bound datagram socket: its queue pair, and its service of rdma_cm, which answers requests for the queue pair. */
import { Scope } from '../base/scope.js';
import { type CmAddress, type CmId, createCmId, UDP_QKEY } from '../cm/index.js';
import { DatagramPort, type DatagramPortListener } from '../transport/datagramport.js';
import type { Context } from '../verbs/objects/context.js';
import { Destinations } from './destinations.js';
import { ServiceCache } from './services.js';

/** Sizes and times of a socket: see `DatagramSocketOptions`. */
export interface BindingSizes {
  readonly receives: number;
  readonly sends: number;
  readonly peers: number;
  readonly refreshInterval: number;
}

/** See the head of this file. */
export class Binding {
  private constructor(
    readonly id: CmId,
    readonly port: DatagramPort,
    readonly services: ServiceCache,
    readonly destinations: Destinations,
    /** Largest message that the buffers hold, bytes. */
    readonly messageBytes: number,
  ) {}

  /** Binds a socket. @throws as `socket.bind`; nothing is left open then */
  static open(
    device: Context,
    port: number,
    host: string,
    { peers, refreshInterval, ...sizes }: BindingSizes,
    listener: DatagramPortListener,
  ): Promise<Binding> {
    return Scope.open(async (scope) => {
      const { activeMtu, maxMtu } = device.queryPort();
      const messageBytes = activeMtu || maxMtu;
      const id = scope.add(createCmId(device, { space: 'UDP' }));
      await id.bindAddr(host, port);
      const datagrams = await DatagramPort.open(
        device,
        { ...sizes, messageBytes, activate: (qp) => id.useQp(qp) },
        listener,
      );
      scope.add({ close: () => datagrams.close(new Error('the socket was not bound')) });
      await id.listen();
      const local = id.localAddress as CmAddress;
      const services = new ServiceCache(device, { local, limit: peers, refreshInterval });
      const destinations = new Destinations(device, local.address, services, datagrams.ahs);
      return new Binding(id, datagrams, services, destinations, messageBytes);
    });
  }

  /** Answers requests for the queue pair until the id is closed. @throws VerbsError when it or the device is closed */
  async serve(): Promise<never> {
    const { qpNum } = this.port.qp;
    for (;;) {
      const request = await this.id.getRequest();
      // It may have been given up.
      await request.accept({ qpNum, qkey: UDP_QKEY }).catch(() => {});
      await request.close();
    }
  }

  /** @param reason error of the datagrams that have not left */
  async close(reason: Error): Promise<void> {
    this.services.close();
    await this.id.close();
    await this.port.close(reason);
  }
}
