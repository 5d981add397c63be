/** Connects by address and port (rdma_cm's active side). */

import { Deferred } from '../../base/deferred.js';
import { anything, type Checks, checkInteger, checkOptions, integer, wrongType } from '../../base/options.js';
import { WAIT_CHECKS, type WaitOptions, waitFor } from '../../base/waiting.js';
import { createCmId } from '../../cm/cmid.js';
import { checkPrivateData, PRIVATE_DATA_BYTES } from '../../cm/parameters.js';
import { VerbsError, withDetails } from '../../errors.js';
import { lookupHost } from '../../link/peer.js';
import { type Endpoint, Endpoints } from '../../transport/endpoints.js';
import { MAX_POOL_BYTES, ReceivePools } from '../../transport/pools/receivepool.js';
import type { Context } from '../../verbs/objects/context.js';
import type { DeviceBase } from '../../verbs/objects/devicebase.js';
import type { Pd } from '../../verbs/objects/pd.js';
import { Connection } from './connection.js';
import {
  CM_ID_OPTIONS,
  CONNECTION_CHECKS,
  type ConnectionOptions,
  type ConnectionSettings,
  connectionSettings,
} from './options.js';
import { CmPeer } from './peer.js';
import { decodePrivateData, encodePrivateData } from './privatedata.js';
import { Resources } from './resources.js';

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

/** @throws as `Device.connect` */
export async function connect(device: Context, options: DeviceConnectOptions): Promise<Connection> {
  const checked = checkOptions('connect', options, CHECKS);
  const { host, port, privateData, tos, pkeyIndex, signal, timeout, pd, receivePoolBytes, ...rest } = checked;
  if (typeof host !== 'string') throw wrongType('host', host, 'an address or a name');
  checkInteger('port', port, 1, 65535);
  const settings = connectionSettings(rest);
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
    let allocating: Promise<Resources> | undefined;
    let connection: Connection | undefined;
    const establish = async () => {
      await id.resolveAddr(await lookupHost(host), port);
      await id.resolveRoute();
      id.assertOpen();
      allocating = Resources.allocate(device, settings, receivePoolsOf(device, receivePoolBytes), pd);
      const resources = await allocating;
      await id.useQp(resources.qp);
      resources.addBuffers();
      const established = await id.connect({
        privateData: requestData(privateData, settings),
        responderResources: settings.readDepth,
        initiatorDepth: settings.readDepth,
        ...settings.retries,
      });
      const peer = new CmPeer(id, decodePrivateData(established.privateData));
      connection = new Connection(device, settings, resources, peer);
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
      // The wait may have ended while the resources were still being allocated.
      const resources = await allocating?.catch(() => undefined);
      await (connection ?? resources)?.close();
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

function requestData(privateData: Uint8Array | undefined, { messageBytes }: ConnectionSettings): Uint8Array {
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
