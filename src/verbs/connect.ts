/** Connecting two queue pairs whose endpoints were exchanged by the program. */
import { VerbsError } from '../errors.js';
import type { AccessFlags } from './access.js';
import { type GlobalRoute, mtuWithin } from './ah.js';
import { checkInteger, show } from './check.js';
import type { Qp } from './qp.js';

/** One end of a connection to be; plain, to be sent as JSON. */
export interface Endpoint {
  readonly qpn: number;
  /** First PSN that this end will send. */
  readonly psn: number;
  readonly gid: string;
  /** Largest path MTU of this end, bytes. */
  readonly mtu?: number;
}

export interface ConnectOptions {
  /** What the peer may do to our memory. Default: nothing; `['remoteWrite', 'remoteRead']` opens the door. */
  readonly access?: AccessFlags;
  /** Bytes. Default: the least of both ends' and the route's. Both ends must come to the same. */
  readonly pathMtu?: number;
  /** 0..31, see `QpAttributes.timeout`. Default 14 (67 ms). */
  readonly timeout?: number;
  /** 0..7. Default 7. */
  readonly retryCnt?: number;
  /** 0..7, 7 = without end. Default 7. */
  readonly rnrRetry?: number;
  /** A code 0..31, see `QpAttributes.minRnrTimer`. Default 12 (0.64 ms). */
  readonly minRnrTimer?: number;
  /** READs and atomics in flight, both ways. Default 16. */
  readonly rdAtomic?: number;
  /** See `Qp.flowControl`. Default: as it is. */
  readonly flowControl?: boolean;
  /** See `Qp.adaptiveRetransmission`. Default: as it is. */
  readonly adaptiveRetransmission?: boolean;
  /** Index of the P_Key table: our partition. Default 0. */
  readonly pkeyIndex?: number;
  /** Our own GID. Default: the one that `endpoint()` told, else chosen by the peer's. */
  readonly sgidIndex?: number;
  /** More of the route: hop limit, traffic class, flow label. */
  readonly route?: Pick<GlobalRoute, 'hopLimit' | 'trafficClass' | 'flowLabel'>;
}

/** What is known when `qp.connect` is called. */
export interface Introduction {
  readonly remote: Endpoint;
  readonly psn: number;
  readonly gidIndex: number | undefined;
}

/** @internal */
export async function connect(qp: Qp, { remote, psn, gidIndex }: Introduction, options: ConnectOptions): Promise<void> {
  checkInteger('remote.qpn', remote?.qpn, 1, 0xffffff);
  checkInteger('remote.psn', remote.psn, 0, 0xffffff);
  if (typeof remote.gid !== 'string') throw new TypeError(`remote.gid is ${show(remote.gid)}, must be text`);
  if (qp.type === 'UD')
    throw new VerbsError('EINVAL', `${qp} has datagrams, which need no connection: see activate and pd.createAh`);
  if (qp.state !== 'RESET') throw new VerbsError('EINVAL', `${qp} is in state ${qp.state}, connect starts from RESET`);
  if (options.flowControl !== undefined) qp.flowControl = options.flowControl;
  if (options.adaptiveRetransmission !== undefined) qp.adaptiveRetransmission = options.adaptiveRetransmission;
  const { device } = qp;
  const sgidIndex = options.sgidIndex ?? gidIndex ?? device.chooseGid(remote.gid).index;
  const address = await device.createAh({ grh: { ...options.route, dgid: remote.gid, sgidIndex } });
  const mtus = [device.queryPort().activeMtu, remote.mtu ?? 4096, mtuWithin(address.pathMtu ?? 65536)];
  const rdAtomic = options.rdAtomic ?? 16;
  const isReliable = qp.type === 'RC';
  try {
    await qp.modify({
      state: 'INIT',
      pkeyIndex: options.pkeyIndex ?? 0,
      portNum: 1,
      qpAccessFlags: options.access ?? 0,
    });
    await qp.modify({
      state: 'RTR',
      ahAttr: address,
      pathMtu: options.pathMtu ?? Math.min(...mtus),
      destQpNum: remote.qpn,
      rqPsn: remote.psn,
      ...(isReliable && { maxDestRdAtomic: rdAtomic, minRnrTimer: options.minRnrTimer ?? 12 }),
    });
    await qp.modify({
      state: 'RTS',
      sqPsn: psn,
      ...(isReliable && {
        timeout: options.timeout ?? 14,
        retryCnt: options.retryCnt ?? 7,
        rnrRetry: options.rnrRetry ?? 7,
        maxRdAtomic: rdAtomic,
      }),
    });
  } catch (error) {
    if (!qp.isClosed) await qp.modify({ state: 'RESET' });
    throw error;
  }
}
