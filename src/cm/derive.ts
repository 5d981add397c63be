/**
 * What a connection's REQ and REP mean for the queue pairs at its ends: every attribute of RTR and RTS is a function of
 * the two messages and of the role.
 */
import type { AccessName } from '../verbs/access.js';
import type { GlobalRoute } from '../verbs/ah.js';
import type { QpAttributes } from '../verbs/attributes.js';
import { gidText } from '../verbs/gid.js';
import { type Message, Transport } from './messages.js';
import { ackTimeout } from './times.js';

export type Role = 'active' | 'passive';

/** Attributes for the three moves of a queue pair, but for the address handle, which is made from `route`. */
export interface DerivedAttributes {
  readonly init: QpAttributes;
  readonly rtr: QpAttributes;
  readonly rts: QpAttributes;
  readonly route: Required<Omit<GlobalRoute, 'sgidIndex'>> & {
    /** Our own GID. */
    readonly sgid: string;
  };
}

/** Code 0 is 655 ms: what Linux leaves in every queue pair of rdma_cm. */
const MIN_RNR_TIMER = 0;

/** What the end itself may choose, as it is on no message. */
export interface OwnChoice {
  /** Rights of the peer beyond those that its READ depth asks for. */
  readonly access?: readonly AccessName[];
  readonly minRnrTimer?: number;
  /** The active end's own path MTU, bytes. Default: that of the REQ, which is what it asked for. */
  readonly pathMtu?: number;
}

/** @param pkeyIndex of the REQ's partition in our own table */
export function deriveAttributes(
  role: Role,
  req: Message<'REQ'>,
  rep: Message<'REP'>,
  pkeyIndex: number,
  own: OwnChoice = {},
): DerivedAttributes {
  const isActive = role === 'active';
  const isReliable = req.transport === Transport.RC;
  const peer = isActive ? rep : req;
  const mine = isActive ? req : rep;
  // Each message speaks from its sender's view: what the REP's sender serves, the REQ's sender may have outstanding.
  const depths = isActive
    ? { maxRdAtomic: rep.responderResources, maxDestRdAtomic: rep.initiatorDepth }
    : { maxRdAtomic: rep.initiatorDepth, maxDestRdAtomic: rep.responderResources };
  const { primary } = req;
  const access = accessFor(isReliable ? depths.maxDestRdAtomic : 0, own.access ?? []);
  return {
    init: { state: 'INIT', pkeyIndex, portNum: 1, qpAccessFlags: access },
    rtr: {
      state: 'RTR',
      pathMtu: own.pathMtu ?? mtuBytes(req.pathMtu),
      destQpNum: peer.localQpn,
      rqPsn: mine.startingPsn,
      ...(isReliable && {
        maxDestRdAtomic: depths.maxDestRdAtomic,
        minRnrTimer: own.minRnrTimer ?? MIN_RNR_TIMER,
      }),
    },
    rts: {
      state: 'RTS',
      sqPsn: peer.startingPsn,
      ...(isReliable && {
        timeout: queuePairTimeout(role, req, rep),
        retryCnt: req.retryCount,
        // how patient the one is with the other's receives, the other says
        rnrRetry: peer.rnrRetryCount,
        maxRdAtomic: depths.maxRdAtomic,
      }),
    },
    route: {
      dgid: gidText(isActive ? primary.remoteGid : primary.localGid),
      sgid: gidText(isActive ? primary.localGid : primary.remoteGid),
      hopLimit: Math.max(1, primary.hopLimit),
      trafficClass: primary.trafficClass,
      flowLabel: primary.flowLabel,
    },
  };
}

/** ACK timeout of a queue pair, encoded: the passive end takes what the REQ says, the active end knows the peer's delay. */
export function queuePairTimeout(
  role: Role,
  { primary }: Message<'REQ'>,
  { targetAckDelay }: Pick<Message<'REP'>, 'targetAckDelay'>,
): number {
  return role === 'passive' ? primary.ackTimeout : ackTimeout(targetAckDelay, Math.max(0, primary.ackTimeout - 1));
}

/** Bytes of a path MTU's code, 1 = 256 to 5 = 4096. */
export function mtuBytes(code: number): number {
  return 128 << code;
}

/** The code of a path MTU of 256 to 4096 bytes. */
export function mtuCode(bytes: number): number {
  return Math.log2(bytes) - 7;
}

/** As Linux: WRITE always, what reads when the end serves reads. */
function accessFor(maxDestRdAtomic: number, more: readonly AccessName[]): AccessName[] {
  const reading: AccessName[] = maxDestRdAtomic > 0 ? ['remoteRead', 'remoteAtomic', 'flushGlobal'] : [];
  return [...new Set<AccessName>(['remoteWrite', ...reading, ...more])];
}
