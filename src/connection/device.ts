/** The device as programs get it: verbs, and connections by address and port. */
import { Device as VerbsDevice } from '../verbs/context.js';
import { type OpenOptions, openDeviceAs } from '../verbs/open.js';
import type { Connection } from './connection.js';
import { connect, type DialOptions } from './dial.js';
import { type ListenOptions, Server } from './server.js';

export class Device extends VerbsDevice {
  /**
   * Connects to whoever listens at an address and port, as every program of rdma_cm does.
   * @throws TypeError, RangeError; CmError ECONNREFUSED with the peer's reason, ETIMEDOUT, ECONNRESET; VerbsError EHOSTUNREACH,
   * EADDRNOTAVAIL, ENOMEM; the signal's reason
   */
  connect(options: DialOptions): Promise<Connection> {
    return connect(this, options);
  }

  /** Listens on a port. @throws TypeError, RangeError; VerbsError EADDRINUSE, EADDRNOTAVAIL */
  listen(options: ListenOptions): Promise<Server> {
    return Server.listen(this, options);
  }
}

/**
 * Opens a device: a card with its own memory, on a link.
 * @throws TypeError, RangeError for wrong options; VerbsError ENODEV, EPERM, EADDRINUSE, EADDRNOTAVAIL, EOPNOTSUPP;
 * Error of node:fs when the capture file cannot be written
 */
export function openDevice(options: OpenOptions = {}): Promise<Device> {
  return openDeviceAs(Device, options);
}
