/** Connecting, by address and port. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { type CmId, type CmIdOptions, createCmId } from '../cm/index.js';
import { VerbsError } from '../errors.js';
import { checkInteger, show } from '../verbs/check.js';
import type { Device } from '../verbs/context.js';
import type { Pd } from '../verbs/pd.js';
import { orGiveUp, type WaitOptions } from '../verbs/waiting.js';
import { Connection, type ConnectionOptions } from './connection.js';

export interface DialOptions extends ConnectionOptions, WaitOptions {
  /** The peer's address or name. */
  readonly host: string;
  readonly port: number;
  /** What the peer gets with the request, up to 56 bytes; it comes filled up with zeros. */
  readonly privateData?: Uint8Array;
  /** Domain of the connection's memory. Default: one of its own. */
  readonly pd?: Pd;
  /** Type of service: IPv4 TOS or IPv6 traffic class, 0..255. Default 0. */
  readonly tos?: number;
  /** Milliseconds until the connecting ends with ETIMEDOUT. Default: the connection manager gives up after 74 s. */
  readonly timeout?: number;
}

/** RNR timer of our queue pairs, a code: 0.64 ms. Without one the connection manager takes 655 ms. */
const MIN_RNR_TIMER = 12;
/** How long a farewell may take until the queue pair goes without an answer (ms). */
const FAREWELL = 1000;

export const ID_OPTIONS: CmIdOptions = { minRnrTimer: MIN_RNR_TIMER, access: ['remoteWrite'] };

/** @throws as `Device.connect` */
export async function connect(device: Device, options: DialOptions): Promise<Connection> {
  const { host, port, privateData, tos, signal, timeout, ...rest } = options;
  if (typeof host !== 'string') throw new TypeError(`host is ${show(host)}, must be an address or a name`);
  checkInteger('port', port, 1, 65535);
  const id = createCmId(device, { ...ID_OPTIONS, ...(tos !== undefined && { tos }) });
  let preparing: Promise<Connection> | undefined;
  const dial = async () => {
    await id.resolveAddr(await addressOf(host), port);
    await id.resolveRoute();
    preparing = prepared(id, rest);
    const connection = await preparing;
    const established = await id.connect(privateData && { privateData });
    return attach(connection, id, established.privateData);
  };
  try {
    return await orGiveUp(dial(), `no connection to ${host} port ${port}`, {
      ...(signal && { signal }),
      ...(timeout !== undefined && { timeout }),
    });
  } catch (error) {
    const isUnresolved = id.remoteAddress === undefined;
    await id.close();
    // the waiting may have been given up while it was in the making
    const connection = await preparing?.catch(() => undefined);
    await connection?.close();
    if (!isUnresolved || !(error instanceof VerbsError && error.code === 'ETIMEDOUT')) throw error;
    const why = 'its way is not known yet: has it a name in DNS, and does it answer ARP or neighbour discovery?';
    throw new VerbsError('ETIMEDOUT', `no connection to ${host} port ${port} within ${timeout} ms; ${why}`);
  }
}

/** A connection to be, whose queue pair the id will connect; its receives are posted. */
export async function prepared(id: CmId, { pd, ...options }: ConnectionOptions & { pd?: Pd }): Promise<Connection> {
  id.assertOpen();
  const connection = await Connection.prepare(pd ?? (await id.device.allocPd()), options, pd === undefined);
  try {
    await id.useQp(connection.qp);
    connection.postReceives();
  } catch (error) {
    await connection.close();
    throw error;
  }
  return connection;
}

/** From now on the connection lives, until one of the two ends says goodbye. */
export function attach(connection: Connection, id: CmId, privateData: Uint8Array = new Uint8Array(0)): Connection {
  const { address = '', port = 0 } = id.remoteAddress ?? {};
  id.channel.onEvent = (event) => {
    if (event.type === 'DISCONNECTED' || event.type === 'DEVICE_REMOVAL') connection.peerLeft(event.error);
  };
  connection.established({ address, port, privateData, leave: () => farewell(id) });
  // it may have been a short visit
  for (let event = id.channel.poll(); event !== undefined; event = id.channel.poll()) id.channel.onEvent(event);
  return connection;
}

/** The peer may have vanished: it has its time to answer, no more. */
async function farewell(id: CmId): Promise<void> {
  try {
    await orGiveUp(id.disconnect(), 'no answer to the farewell', { timeout: FAREWELL });
  } finally {
    await id.close();
  }
}

/** @throws VerbsError EHOSTUNREACH when the name is not known */
async function addressOf(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch (cause) {
    throw new VerbsError('EHOSTUNREACH', `no address is known for '${host}'`, { cause });
  }
}
