/** Connects by address and port (rdma_cm's active side). */

import {
  anything,
  bytes,
  type Checks,
  checkInteger,
  checkOptions,
  instanceOf,
  integer,
  show,
} from '../../base/options.js';
import { RNR_TIMER } from '../../base/rnrtimer.js';
import { WAIT_CHECKS, type WaitOptions, waitFor } from '../../base/waiting.js';
import { Deferred } from '../../cm/deferred.js';
import { type CmEvent, type CmId, type CmIdOptions, createCmId } from '../../cm/index.js';
import { checkPrivateData, PRIVATE_DATA_BYTES } from '../../cm/parameters.js';
import { invalidType, VerbsError, withDetails } from '../../errors.js';
import { lookupHost } from '../../link/peer.js';
import type { Context } from '../../verbs/objects/context.js';
import type { DeviceBase } from '../../verbs/objects/devicebase.js';
import { Pd } from '../../verbs/objects/pd.js';
import { Connection, type ConnectionOptions } from './connection.js';
import { type Endpoint, Endpoints } from './endpoints.js';
import type { Peer } from './peer.js';
import { decodePrivateData, encodePrivateData } from './privatedata.js';
import { MAX_POOL_BYTES, ReceivePools } from './receivepool.js';

/** Options of `device.connect`. */
export interface DeviceConnectOptions extends ConnectionOptions, WaitOptions {
  /** The peer's IP address or host name. */
  readonly host: string;
  /** The peer's rdma_cm port, 1..65535. */
  readonly port: number;
  /**
   * Sent with the connection request, at most 56 bytes. A peer of another project receives 56 bytes. With more than 40
   * bytes the two ends do not tell each other their `messageBytes`.
   */
  readonly privateData?: Uint8Array;
  /** Protection domain of the connection's queue pair and memory. Default: a new one, closed with the connection. */
  readonly pd?: Pd;
  /** Type of service: IPv4 TOS or IPv6 traffic class, 0..255. Default 0. */
  readonly tos?: number;
  /**
   * Index into the device's P_Key table (`device.queryPkey`): the partition of the connection. The server needs an
   * entry of the same partition. Default: the default partition; without it, the first entry.
   */
  readonly pkeyIndex?: number;
  /**
   * Bytes of receive buffers that this connection shares with others of the device that `connect` has made, with the
   * same `messageBytes`: the largest value counts when there is no other. See `ListenOptions.receivePoolBytes`.
   */
  readonly receivePoolBytes?: number;
  /** Milliseconds until the attempt fails with ETIMEDOUT. Default: the connection manager gives up after 74 s. */
  readonly timeout?: number;
}

/** Time that the answer to our DREQ has, before the queue pair is destroyed without it (ms). */
const DISCONNECT_TIMEOUT = 1000;

/** Options of every connection, of which `Connection` checks the values, and of the request or its answer. */
export const CONNECTION_CHECKS: Checks<ConnectionOptions & Pick<DeviceConnectOptions, 'privateData' | 'pd'>> = {
  messageBytes: anything,
  receives: anything,
  ownReceives: anything,
  sends: anything,
  keepAlive: anything,
  closeTimeout: anything,
  retryCnt: anything,
  privateData: bytes,
  pd: instanceOf(() => Pd, 'a protection domain'),
};
const CHECKS: Checks<DeviceConnectOptions> = {
  ...CONNECTION_CHECKS,
  ...WAIT_CHECKS,
  host: anything,
  port: anything,
  tos: integer(0, 255),
  pkeyIndex: anything,
  receivePoolBytes: integer(1, MAX_POOL_BYTES),
};

const poolsByDevice = new WeakMap<DeviceBase, ReceivePools>();

export const CM_ID_OPTIONS: CmIdOptions = { minRnrTimer: RNR_TIMER, access: ['remoteWrite'] };

/** @throws as `Device.connect` */
export async function connect(device: Context, options: DeviceConnectOptions): Promise<Connection> {
  const checked = checkOptions('connect', options, CHECKS);
  const { host, port, privateData, tos, pkeyIndex, signal, timeout, pd, receivePoolBytes, ...rest } = checked;
  if (typeof host !== 'string') throw invalidType(`host is ${show(host)}, must be an address or a name`);
  checkInteger('port', port, 1, 65535);
  const endpoints = Endpoints.of(device);
  endpoints.assertOpen();
  /** Ends the attempt when the device is closed. */
  const destroyed = new Deferred<never>();
  const attempt = async () => {
    const id = createCmId(device, {
      ...CM_ID_OPTIONS,
      ...(tos !== undefined && { tos }),
      ...(pkeyIndex !== undefined && { pkeyIndex }),
    });
    let connection: Connection | undefined;
    let preparing: Promise<void> | undefined;
    const establish = async () => {
      await id.resolveAddr(await lookupHost(host), port);
      await id.resolveRoute();
      id.assertOpen();
      connection = new Connection(device, rest);
      preparing = prepareConnection(connection, id, receivePoolsOf(device, receivePoolBytes), pd);
      await preparing;
      connection.addBuffers();
      const established = await id.connect({
        privateData: requestData(privateData, connection),
        responderResources: connection.readDepth,
        initiatorDepth: connection.readDepth,
        ...retriesOf(connection),
      });
      openConnection(connection, id, decodePrivateData(established.privateData));
      connection.onEstablished();
      return connection;
    };
    try {
      const established = Promise.race([establish(), destroyed.promise]);
      return await waitFor(established, `no connection to ${host} port ${port}`, {
        ...(signal !== undefined && { signal }),
        ...(timeout !== undefined && { timeout }),
      });
    } catch (error) {
      const isUnresolved = id.remoteAddress === undefined;
      await id.close();
      // The wait may have ended while the connection was still being prepared.
      await preparing?.catch(() => {});
      await connection?.close();
      if (!isUnresolved || !(error instanceof VerbsError && error.code === 'ETIMEDOUT')) throw error;
      const why =
        'its address is not resolved yet: is the name in DNS, and does the host answer ARP or neighbour discovery?';
      throw new VerbsError('ETIMEDOUT', `no connection to ${host} port ${port} within ${timeout} ms; ${why}`);
    }
  };
  const connecting = attempt();
  const destroy = () => destroyed.reject(new VerbsError('ECANCELED', `${device} was closed`));
  const close = () => {
    destroy();
    return connecting;
  };
  const endpoint: Endpoint = { close, destroy };
  const number = endpoints.add(endpoint);
  try {
    return await connecting;
  } catch (error) {
    throw withDetails(error, { syscall: 'connect', address: host, port });
  } finally {
    endpoints.delete(number);
  }
}

/** @internal Returns the parameter of `id.connect` or `id.accept` for the retries that the application asks for. */
export function retriesOf({ retryCnt }: Connection): { retryCount?: number } {
  return retryCnt === undefined ? {} : { retryCount: retryCnt };
}

function requestData(privateData: Uint8Array | undefined, { messageBytes }: Connection): Uint8Array {
  const limit = PRIVATE_DATA_BYTES.connect;
  return encodePrivateData(checkPrivateData(privateData, limit), messageBytes, limit);
}

/** Returns the receive buffers of all connections that the device has made. */
function receivePoolsOf(device: Context, maxBytes: number | undefined): ReceivePools {
  const pools = poolsByDevice.get(device) ?? new ReceivePools(device, { maxBytes, isKept: true });
  poolsByDevice.set(device, pools);
  if (maxBytes !== undefined) pools.raise(maxBytes);
  return pools;
}

/** Allocates a connection whose queue pair the id will connect. @throws VerbsError ENOMEM */
export async function prepareConnection(
  connection: Connection,
  id: CmId,
  pools: ReceivePools,
  pd: Pd | undefined,
): Promise<void> {
  await connection.allocate(pools, pd);
  await id.useQp(connection.qp);
}

/** Hands a connection over to the application. Events of the id end it. */
export function openConnection(
  connection: Connection,
  id: CmId,
  data: Pick<Peer, 'privateData' | 'messageBytes'>,
): void {
  const { address = '', port = 0 } = id.remoteAddress ?? {};
  const onEvent = (event: CmEvent) => {
    if (event.type === 'DISCONNECTED' || event.type === 'DEVICE_REMOVAL') connection.onDisconnected(event.error);
    else if (event.type === 'REJECTED' || event.type === 'UNREACHABLE') connection.fail(event.error);
  };
  id.channel.observe(onEvent);
  connection.open({ address, port, ...data, disconnect: () => disconnect(id) });
  // The peer may have disconnected already.
  for (let event = id.channel.poll(); event !== undefined; event = id.channel.poll()) onEvent(event);
}

/** Sends DREQ and waits for the answer, but not long: the peer may have vanished. */
async function disconnect(id: CmId): Promise<void> {
  try {
    await waitFor(id.disconnect(), 'no answer to the disconnect request', { timeout: DISCONNECT_TIMEOUT });
  } finally {
    await id.close();
  }
}
