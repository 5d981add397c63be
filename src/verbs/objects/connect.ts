/** Connects two queue pairs whose endpoints the application has exchanged. */

import {
  anything,
  type Checks,
  checkBoolean,
  checkInteger,
  checkOptions,
  nested,
  wrongType,
} from '../../base/options.js';
import { RNR_TIMER } from '../../base/rnrtimer.js';
import { WAIT_CHECKS } from '../../base/waiting.js';
import { VerbsError } from '../../errors.js';
import type { AccessFlags } from '../access.js';
import { type GlobalRoute, maxPathMtu } from '../address/resolvedaddress.js';
import type { Qp } from './qp.js';

/** Address and number of a queue pair, for its peer. From `qp.endpoint()`; plain data, to be sent as JSON. */
export interface Endpoint {
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  /** First PSN that this end sends, 24 bits. */
  readonly psn: number;
  /** GID of this end, as text. */
  readonly gid: string;
  /** Largest path MTU of this end in payload bytes. Default 4096. */
  readonly mtu?: number;
}

/** Options of `qp.connect`. */
export interface QpConnectOptions {
  /** Rights of the peer to our memory, e.g. `['remoteWrite', 'remoteRead']`. Default: none. */
  readonly access?: AccessFlags;
  /**
   * Path MTU in payload bytes. Default: the smallest of both ends' and the route's. Both ends must use the same value.
   */
  readonly pathMtu?: number;
  /** Local ACK timeout, a code 0..31, see `QpAttributes.timeout`. Default 14 (67 ms). */
  readonly timeout?: number;
  /** Retries after ACK timeouts and sequence errors, 0..7. Default 7. */
  readonly retryCnt?: number;
  /** Retries after RNR NAKs, 0..7; 7 = without limit. Default 7. */
  readonly rnrRetry?: number;
  /** RNR timer, a code 0..31, see `QpAttributes.minRnrTimer`. Default 12 (0.64 ms). */
  readonly minRnrTimer?: number;
  /** Most outstanding READs and atomics in each direction. Default 16. */
  readonly rdAtomic?: number;
  /** Sets `Qp.flowControl`. Default: unchanged. */
  readonly flowControl?: boolean;
  /** Sets `Qp.adaptiveRetransmission`. Default: unchanged. */
  readonly adaptiveRetransmission?: boolean;
  /** Index into the P_Key table: our partition. Default 0. */
  readonly pkeyIndex?: number;
  /** Index of our GID. Default: the GID that `endpoint()` returned, else chosen for the peer's GID. */
  readonly sgidIndex?: number;
  /** Hop limit, traffic class and flow label. */
  readonly route?: Pick<GlobalRoute, 'hopLimit' | 'trafficClass' | 'flowLabel'>;
  /** Service level, 0..7: the priority of the VLAN tag, if the route leaves by a VLAN. Default 0. */
  readonly sl?: number;
  /** Cancels the wait for the peer's address: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Their checks. `qp.modify` checks the values of the attributes. */
const CHECKS: Checks<QpConnectOptions> = {
  access: anything,
  pathMtu: anything,
  timeout: anything,
  retryCnt: anything,
  rnrRetry: anything,
  minRnrTimer: anything,
  rdAtomic: anything,
  flowControl: checkBoolean,
  adaptiveRetransmission: checkBoolean,
  pkeyIndex: anything,
  sgidIndex: anything,
  route: nested({ hopLimit: anything, trafficClass: anything, flowLabel: anything }),
  sl: anything,
  signal: WAIT_CHECKS.signal,
};

/** The peer's endpoint, and our first PSN and GID index. */
export interface ConnectTarget {
  readonly remote: Endpoint;
  readonly psn: number;
  readonly gidIndex: number | undefined;
}

/** @internal Moves a queue pair from RESET to RTS; back to RESET after an error. @throws as `qp.modify` */
export async function connect(
  qp: Qp,
  { remote, psn, gidIndex }: ConnectTarget,
  options: QpConnectOptions,
): Promise<void> {
  const { signal } = checkOptions('qp.connect', options, CHECKS);
  checkInteger('remote.qpNum', remote?.qpNum, 1, 0xffffff);
  checkInteger('remote.psn', remote.psn, 0, 0xffffff);
  if (typeof remote.gid !== 'string') throw wrongType('remote.gid', remote.gid, 'text');
  if (qp.type === 'UD')
    throw new VerbsError('EINVAL', `${qp} has type UD, which needs no connection: use activate and pd.createAh`);
  if (qp.state !== 'RESET') throw new VerbsError('EINVAL', `${qp} is in state ${qp.state}, connect starts from RESET`);
  if (options.flowControl !== undefined) qp.flowControl = options.flowControl;
  if (options.adaptiveRetransmission !== undefined) qp.adaptiveRetransmission = options.adaptiveRetransmission;
  const { device } = qp;
  const sgidIndex = options.sgidIndex ?? gidIndex ?? device.chooseGid(remote.gid).index;
  const address = await device.resolveAddress(
    { grh: { ...options.route, dgid: remote.gid, sgidIndex }, sl: options.sl ?? 0 },
    signal && { signal },
  );
  const mtus = [device.queryPort().activeMtu, remote.mtu ?? 4096, maxPathMtu(address.pathMtu ?? 65536)];
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
      destQpNum: remote.qpNum,
      rqPsn: remote.psn,
      ...(isReliable && { maxDestRdAtomic: rdAtomic, minRnrTimer: options.minRnrTimer ?? RNR_TIMER }),
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
