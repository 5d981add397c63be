/** The public device: verbs, and connections and datagrams by address and port. */

import { checkBoolean, checkOptions } from './base/options.js';
import { DatagramSocket, type DatagramSocketOptions } from './datagram/socket.js';
import { connect, type DeviceConnectOptions } from './protocols/message/connect.js';
import type { Connection } from './protocols/message/connection.js';
import { type ListenOptions, Server } from './protocols/message/server.js';
import { Endpoints } from './transport/endpoints.js';
import { Context } from './verbs/objects/context.js';
import { type OpenOptions, openDeviceAs } from './verbs/open.js';

/**
 * An open device: a software RoCEv2 adapter with its own memory, on a link. {@link openDevice} opens it. All other
 * objects come from it: protection domains, completion queues, connections, servers and datagram sockets.
 *
 * Events: `event` with an `AsyncEvent`, also as `for await (const event of device.events)`; `close`.
 *
 * @example
 * ```ts
 * await using device = await openDevice({ interface: 'eth0' });
 * const pd = await device.allocPd();
 * const cq = await device.createCq();
 * const mr = await pd.regMr(4096);
 * const qp = await pd.createQp({ sendCq: cq });
 * console.log(device.notes.join('\n'), mr.length, qp.endpoint());
 * ```
 */
export class Device extends Context {
  /**
   * Connects to an rdma_cm port of a peer (rdma_connect). The peer may be any rdma_cm program.
   * @throws TypeError, RangeError for wrong options; CmError ECONNREFUSED with the peer's reason, ETIMEDOUT,
   * ECONNRESET; VerbsError EHOSTUNREACH, EADDRNOTAVAIL, ENOMEM, ETIMEDOUT after `timeout`; the signal's reason
   */
  connect(options: DeviceConnectOptions): Promise<Connection>;
  /**
   * Same as `connect({ port, host, ...options })`.
   * @param port the peer's rdma_cm port, 1..65535
   * @param host the peer's IP address or host name
   * @throws as above
   */
  connect(port: number, host: string, options?: Omit<DeviceConnectOptions, 'host' | 'port'>): Promise<Connection>;
  async connect(
    first: DeviceConnectOptions | number,
    host = '',
    options: Omit<DeviceConnectOptions, 'host' | 'port'> = {},
  ): Promise<Connection> {
    return connect(this, typeof first === 'number' ? { ...options, port: first, host } : first);
  }

  /**
   * Listens on an rdma_cm port (rdma_listen).
   * @throws TypeError, RangeError for wrong options; VerbsError EADDRINUSE when the port is taken, EADDRNOTAVAIL when
   * `host` is no address of the device
   */
  listen(options: ListenOptions): Promise<Server>;
  /**
   * Same as `listen({ port, host, ...options })`.
   * @param port rdma_cm port, 0..65535; 0 = any free port
   * @param host one of the device's addresses. Default: all
   * @throws as above
   */
  listen(port: number, host?: string, options?: Omit<ListenOptions, 'host' | 'port'>): Promise<Server>;
  async listen(
    first: ListenOptions | number,
    host?: string,
    options: Omit<ListenOptions, 'host' | 'port'> = {},
  ): Promise<Server> {
    if (typeof first !== 'number') return Server.listen(this, first);
    return Server.listen(this, { ...options, port: first, ...(host !== undefined && { host }) });
  }

  /**
   * Creates a datagram socket, not bound yet.
   * @throws TypeError, RangeError for wrong options; VerbsError EINVAL when the device is closed, EIO when it has
   * failed
   */
  createSocket(options: DatagramSocketOptions = {}): DatagramSocket {
    return new DatagramSocket(this, options);
  }

  /**
   * Closes the device and its link (ibv_close_device). First closes its servers, connections and sockets in order, for
   * which it takes at most 5 seconds; what is not closed by then is destroyed. A second call does nothing.
   * @param options `force`: destroys connections at once, and also closes all objects of the device: everything that
   * waits is told. Default false
   * @throws VerbsError EBUSY when objects that the program has created are still open; the message names them; EIO when
   * the file of `pcap` is not whole, once everything is closed
   */
  override async close(options: { readonly force?: boolean } = {}): Promise<void> {
    const { force = false } = checkOptions('device.close', options, { force: checkBoolean });
    if (!force && !this.isClosed) await Endpoints.of(this).closeAll();
    await super.close({ force });
  }

  /** @internal */
  protected override closeWithUsers(): void {
    Endpoints.of(this).destroyAll();
    super.closeWithUsers();
  }
}

/**
 * Opens a device: a software adapter with its own memory, on a link (ibv_open_device).
 * @throws TypeError, RangeError for wrong options; VerbsError ENODEV without a usable interface, EPERM without a needed
 * privilege, EADDRINUSE or EADDRNOTAVAIL for the addresses, EOPNOTSUPP without the native addon or the kernel's
 * support, EIO; an Error of node:fs when the capture file cannot be written
 */
export function openDevice(options: OpenOptions = {}): Promise<Device> {
  return openDeviceAs(Device, options);
}
