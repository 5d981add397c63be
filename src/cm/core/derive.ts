/**
 * Queue pair attributes of a connection: every attribute of INIT, RTR and RTS is a function of the REQ, the REP and the
 * role (rdma_init_qp_attr).
 */

import { gidText } from '../../base/gid.js';
import { type Fields, Transport } from './messages.js';
import { ackTimeout } from './times.js';

/** The active side sends the REQ, the passive side the REP. */
export type Role = 'active' | 'passive';

/** Access rights (ibv_access_flags), with the names of `AccessName` in the verbs. */
export type AccessRight =
  | 'localWrite'
  | 'remoteWrite'
  | 'remoteRead'
  | 'remoteAtomic'
  | 'mwBind'
  | 'zeroBased'
  | 'flushGlobal'
  | 'invalidate';

/**
 * Attributes of a connection's queue pair for `qp.modify`, without `ahAttr`, which the caller makes from `route`
 * (rdma_init_qp_attr). PSNs and queue pair numbers have 24 bits.
 */
export interface DerivedAttributes {
  /** Attributes for RESET to INIT. */
  readonly init: {
    readonly state: 'INIT';
    /** Index of the connection's P_Key in our table. */
    readonly pkeyIndex: number;
    /** 1, the only port. */
    readonly portNum: number;
    /** Rights of the peer. */
    readonly qpAccessFlags: readonly AccessRight[];
  };
  /** Attributes for INIT to RTR. */
  readonly rtr: {
    readonly state: 'RTR';
    /** Bytes. */
    readonly pathMtu: number;
    /** The peer's queue pair number. */
    readonly destQpNum: number;
    /** First PSN that the peer sends. */
    readonly rqPsn: number;
    /** READs and atomics of the peer that we serve at a time; RC only. */
    readonly maxDestRdAtomic?: number;
    /** Code, see `QpAttributes.minRnrTimer`; RC only. */
    readonly minRnrTimer?: number;
  };
  /** Attributes for RTR to RTS. */
  readonly rts: {
    readonly state: 'RTS';
    /** First PSN that we send. */
    readonly sqPsn: number;
    /** ACK timeout: 4.096 us * 2^timeout; RC only. */
    readonly timeout?: number;
    /** Retries after timeouts and sequence errors; RC only. */
    readonly retryCnt?: number;
    /** Retries after RNR NAKs, 7: without end; RC only. */
    readonly rnrRetry?: number;
    /** READs and atomics that the peer serves; RC only. */
    readonly maxRdAtomic?: number;
  };
  /** The global route: `ahAttr.grh`, once `sgid` is replaced by its index in `device.gids`. */
  readonly route: {
    /** The peer's GID, as text. */
    readonly dgid: string;
    /** Our GID, as text. */
    readonly sgid: string;
    /** TTL or IPv6 hop limit, 1..255. */
    readonly hopLimit: number;
    /** IPv4 TOS or IPv6 traffic class, 0..255. */
    readonly trafficClass: number;
    /** 20 bits. */
    readonly flowLabel: number;
  };
  /** Service level, 0..7: `ahAttr.sl`. */
  readonly sl: number;
}

/** Code 0 is 655 ms: the value that Linux leaves in every queue pair of rdma_cm. */
const MIN_RNR_TIMER = 0;

/** Attributes of our queue pair that no message carries. */
export interface LocalQpOptions {
  /** Rights of the peer beyond those that its depths imply. */
  readonly access?: readonly AccessRight[];
  /** Code, see `QpAttributes.minRnrTimer`. Default 0. */
  readonly minRnrTimer?: number;
  /** Path MTU of the active side, bytes. Default: that of the REQ. */
  readonly pathMtu?: number;
  /** READs and atomics in each direction that our card can have, whatever the peer's message says. Default: any. */
  readonly maxRdAtomic?: number;
  /** Retries of our queue pair. Default: those of the REQ. */
  readonly retryCnt?: number;
}

/** Fields of both messages on the queue pair of their sender, and on the READs and atomics that it takes and makes. */
type End = 'localQpn' | 'startingPsn' | 'rnrRetry' | 'responderResources' | 'initiatorDepth';
/** The fields of a REQ that attributes follow from. */
export type ReqTerms = Pick<Fields<'REQ'>, End | 'transport' | 'pathMtu' | 'retryCnt' | 'primary'>;
/** The fields of a REP that attributes follow from. */
export type RepTerms = Pick<Fields<'REP'>, End | 'targetAckDelay'>;

/** Returns the attributes of our queue pair. @param pkeyIndex index of the REQ's P_Key in our table */
export function deriveAttributes(
  role: Role,
  req: ReqTerms,
  rep: RepTerms,
  pkeyIndex: number,
  qpOptions: LocalQpOptions = {},
): DerivedAttributes {
  const isActive = role === 'active';
  const isReliable = req.transport === Transport.RC;
  const peer = isActive ? rep : req;
  const local = isActive ? req : rep;
  // Each message is from its sender's view: the REQ's sender may have outstanding what the REP's sender serves.
  const [outgoing, incoming] = isActive
    ? [rep.responderResources, rep.initiatorDepth]
    : [rep.initiatorDepth, rep.responderResources];
  const { maxRdAtomic: limit = Number.POSITIVE_INFINITY } = qpOptions;
  const depths = { maxRdAtomic: Math.min(outgoing, limit), maxDestRdAtomic: Math.min(incoming, limit) };
  const { primary } = req;
  const access = accessFor(isReliable ? depths.maxDestRdAtomic : 0, qpOptions.access ?? []);
  return {
    init: { state: 'INIT', pkeyIndex, portNum: 1, qpAccessFlags: access },
    rtr: {
      state: 'RTR',
      pathMtu: qpOptions.pathMtu ?? mtuBytes(req.pathMtu),
      destQpNum: peer.localQpn,
      rqPsn: local.startingPsn,
      ...(isReliable && {
        maxDestRdAtomic: depths.maxDestRdAtomic,
        minRnrTimer: qpOptions.minRnrTimer ?? MIN_RNR_TIMER,
      }),
    },
    rts: {
      state: 'RTS',
      sqPsn: peer.startingPsn,
      ...(isReliable && {
        timeout: queuePairTimeout(role, req, rep),
        retryCnt: qpOptions.retryCnt ?? req.retryCnt,
        // Each end sets how often its peer retries when it has no receive posted.
        rnrRetry: peer.rnrRetry,
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
    // RoCE uses three of the field's four bits.
    sl: primary.sl & 7,
  };
}

/**
 * ACK timeout of a queue pair, encoded: the passive side takes it from the REQ, the active side adds the peer's ACK
 * delay.
 */
export function queuePairTimeout(
  role: Role,
  { primary }: Pick<ReqTerms, 'primary'>,
  { targetAckDelay }: Pick<RepTerms, 'targetAckDelay'>,
): number {
  return role === 'passive' ? primary.ackTimeout : ackTimeout(targetAckDelay, Math.max(0, primary.ackTimeout - 1));
}

/** Path MTU in bytes of a code: 1 is 256, 5 is 4096. */
export function mtuBytes(code: number): number {
  return 128 << code;
}

/** Code of a path MTU of 256 to 4096 bytes. */
export function mtuCode(bytes: number): number {
  return Math.log2(bytes) - 7;
}

/** Rights of the peer, as in Linux: WRITE always; READ, atomics and FLUSH when this end serves READs. */
function accessFor(maxDestRdAtomic: number, extra: readonly AccessRight[]): AccessRight[] {
  const readRights: AccessRight[] = maxDestRdAtomic > 0 ? ['remoteRead', 'remoteAtomic', 'flushGlobal'] : [];
  return [...new Set<AccessRight>(['remoteWrite', ...readRights, ...extra])];
}
