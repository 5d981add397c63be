/** Explains failed completions: what the card knows, and the usual causes. */
import { nameOf, WcOpcode, WcStatus } from '../../device/codes.js';
import { hex, qpnText } from '../../device/decode.js';
import { explainDrop } from './drops.js';
import meanings from './meanings.json' with { type: 'json' };

/** The fields of a completion that an explanation uses. */
export interface CompletionFacts {
  readonly wrId: number;
  readonly status: number;
  readonly opcode: number;
  readonly qpNum: number;
  /** AETH syndrome of the last ACK or NAK; 0 = none received. */
  readonly syndrome: number;
  readonly psn: number;
  /** Expired ACK timers, and received RNR NAKs, since the last progress. */
  readonly timeouts: number;
  readonly rnrs: number;
}

/** State of the queue pair and its device at the time of the explanation. */
export interface FailureContext {
  readonly peer?: { readonly address: string; readonly qpNum: number };
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly pathMtu: number;
  /** The next message waits, or waited when the queue pair went to ERR, for a credit of the peer. */
  readonly waitsForCredits: boolean;
  /** Packets received for this queue pair; undefined = not counted. */
  readonly received?: number;
  /** Drop counters of the device other than 0. */
  readonly drops?: Readonly<Record<string, number>>;
  readonly link: string;
  /** Returns the last packets of the queue pair as text, if the device traces packets. */
  readonly packets?: () => readonly string[];
  /** The last decisions of the card about the queue pair, in words, if the device traces them. */
  readonly decisions?: () => readonly string[];
}

/** The failure of a work request: facts, likely causes and, with tracing, the last packets. From `wc.explain()`. */
export interface Explanation {
  /** One line: the operation, the queue pairs and the status. */
  readonly summary: string;
  /** Name of the status (ibv_wc_status), e.g. `RETRY_EXC_ERR`. */
  readonly status: string;
  /** The last ACK or NAK of the peer as text; 'no answer' if none was received. */
  readonly syndrome: string;
  /** PSN of the packet concerned, 24 bits. */
  readonly psn: number;
  /** IP address and queue pair number of the peer. Undefined when not connected, or no longer known. */
  readonly peer: { readonly address: string; readonly qpNum: number } | undefined;
  /** Timers and retries of the queue pair. */
  readonly timers: {
    /** Local ACK timeout in milliseconds; 0 = none. */
    readonly ackTimeoutMs: number;
    /** ACK timeouts since the last progress. */
    readonly timeouts: number;
    /** Retries allowed after timeouts and sequence errors. */
    readonly retryCnt: number;
    /** RNR NAKs received since the last progress. */
    readonly rnrNaks: number;
    /** Retries allowed after RNR NAKs; 7 = without limit. */
    readonly rnrRetry: number;
  };
  /** Likely causes, most likely first. */
  readonly likelyCauses: readonly string[];
  /**
   * The last packets of the queue pair, one line each, oldest first. Empty unless the device was opened with `trace`.
   */
  readonly packets: readonly string[];
  /**
   * The card's last decisions about the queue pair, a line each, oldest first. Empty unless it was opened with
   * `decisions`.
   */
  readonly decisions: readonly string[];
}

/**
 * Error of a failed completion. {@link throwIfFailed} and requests of a `Connection` throw it. Its message lists
 * the likely causes.
 *
 * @example
 * ```ts
 * try {
 *   throwIfFailed(await cq.next());
 * } catch (error) {
 *   if (error instanceof WcError) console.error(error.status, error.explanation.likelyCauses);
 * }
 * ```
 */
export class WcError extends Error {
  /** Always `WcError`. */
  override readonly name = 'WcError';
  /** Name of the status, e.g. `RETRY_EXC_ERR`. */
  readonly status: string;
  /** Same as `status`, as every error has a code. */
  readonly code: string;
  /** IP address of the peer, if it is known. */
  declare address?: string;
  /** @param explanation explanation of the completion, from `wc.explain()` */
  constructor(
    /** Explanation of the completion. */
    readonly explanation: Explanation,
  ) {
    super([explanation.summary, ...explanation.likelyCauses.map((cause) => `  - ${cause}`)].join('\n'));
    this.status = explanation.status;
    this.code = explanation.status;
    if (explanation.peer !== undefined) this.address = explanation.peer.address;
  }
}

/**
 * Throws if a completion has failed, and returns it otherwise.
 * @throws WcError when the status is not SUCCESS
 */
export function throwIfFailed<T extends { readonly status: number; explain(): Explanation }>(wc: T): T {
  if (wc.status !== WcStatus.SUCCESS) throw new WcError(wc.explain());
  return wc;
}

/** @internal Explains a completion. @param context undefined when the queue pair is closed */
export function explain(wc: CompletionFacts, context: FailureContext | undefined): Explanation {
  const status = nameOf(WcStatus, wc.status);
  const peer = context?.peer;
  const ackTimeoutMs = context === undefined || context.timeout === 0 ? 0 : 0.004096 * 2 ** context.timeout;
  const where = peer ? ` to ${peer.address} qp ${qpnText(peer.qpNum)}` : '';
  const operation = nameOf(WcOpcode, wc.opcode);
  const isUnanswered = wc.status === WcStatus.WR_FLUSH_ERR && wc.opcode < WcOpcode.RECV;
  const doubt = isUnanswered ? '; a request in flight may have reached the peer' : '';
  const summary =
    wc.status === WcStatus.SUCCESS
      ? `${operation} (wrId ${wc.wrId}) on qp ${qpnText(wc.qpNum)} succeeded`
      : `${operation} (wrId ${wc.wrId}) on qp ${qpnText(wc.qpNum)}${where} failed with ${status}: ${STATUS_MEANINGS[status] ?? 'unknown status'}${doubt}`;
  return {
    summary,
    status,
    syndrome: syndromeText(wc.syndrome),
    psn: wc.psn,
    peer,
    timers: {
      ackTimeoutMs,
      timeouts: wc.timeouts,
      retryCnt: context?.retryCnt ?? 0,
      rnrNaks: wc.rnrs,
      rnrRetry: context?.rnrRetry ?? 0,
    },
    likelyCauses: likelyCauses(wc, context, ackTimeoutMs),
    packets: context?.packets?.() ?? [],
    decisions: context?.decisions?.() ?? [],
  };
}

/** Meanings by name of a status. The library for C programs says the same of them. */
const STATUS_MEANINGS: Readonly<Record<string, string>> = meanings.statuses;

/** By NAK code (IBTA 9.7.5.2.8). */
const NAKS: readonly string[] = meanings.naks;

/** Returns an AETH syndrome as text (IBTA 9.7.5.1). 0, an ACK without credits, stands for no answer. */
export function syndromeText(syndrome: number): string {
  if (syndrome === 0) return 'no answer';
  const code = syndrome & 0x1f;
  const value = `(${hex(syndrome, 2)})`;
  switch (syndrome >>> 5) {
    case 0:
      return `ACK ${value}`;
    case 1:
      return `RNR NAK: no receive posted, timer code ${code} ${value}`;
    case 3:
      return `${NAKS[code] ?? `NAK with reserved code ${code}`} ${value}`;
    default:
      return `reserved syndrome ${value}`;
  }
}

function likelyCauses(wc: CompletionFacts, context: FailureContext | undefined, ackTimeoutMs: number): string[] {
  const opcode = nameOf(WcOpcode, wc.opcode);
  switch (wc.status) {
    case WcStatus.LOC_LEN_ERR:
      return wc.opcode >= WcOpcode.RECV
        ? ['the message was longer than the sgList of this receive: post larger receives']
        : ['the READ response did not have the requested length: the path MTUs of the two ends may differ'];
    case WcStatus.MW_BIND_ERR:
      if (opcode === 'LOCAL_INV')
        return [
          'no fast region and no type 2 window has this key: it is unknown, invalidated already, or bound on another queue pair',
          'the region lacks the right invalidate, or memory windows are bound to it',
        ];
      if (opcode === 'REG_MR')
        return [
          'the region is registered already: invalidate it first',
          'remoteWrite and remoteAtomic need localWrite',
        ];
      return [
        'the region lacks mwBind, or localWrite for a window with remoteWrite or remoteAtomic',
        'offset and length reach outside the region, or length is 0',
        'the type 2 window is already bound: invalidate it first',
        'zeroBased needs a type 2 window; flushGlobal must be a right of the region too',
        'window, region and queue pair belong to different protection domains',
      ];
    case WcStatus.LOC_QP_OP_ERR:
      return [
        'an sgList or a length that the queue pair cannot handle',
        'more READs or atomics than maxRdAtomic allows (0 allows none)',
        'the peer aborted a message before its last packet',
      ];
    case WcStatus.LOC_PROT_ERR:
      return [
        'an lkey of the sgList is wrong, or its region was closed before the completion',
        'the region belongs to another protection domain than the queue pair',
        'addr and length reach outside the region',
        ...(wc.opcode === WcOpcode.SEND || wc.opcode === WcOpcode.RDMA_WRITE
          ? []
          : ['the region lacks localWrite, which receives, READs and atomics need']),
      ];
    case WcStatus.WR_FLUSH_ERR:
      return [
        ...(context?.waitsForCredits && wc.opcode < WcOpcode.RECV
          ? [
              'the queue pair was waiting for credits (flowControl): the peer has advertised no receive for the next message',
            ]
          : []),
        'an earlier request failed: see the first completion of this queue pair with another status than WR_FLUSH_ERR',
        "the peer's request was refused here; see the device's events",
        'the application moved the queue pair to ERR, or the peer disconnected (rdma_cm)',
      ];
    case WcStatus.REM_INV_REQ_ERR:
      return [
        ...(opcode === 'SEND' ? ['the message is longer than the receive posted by the peer'] : []),
        `the peer's queue pair does not allow ${opcode} (its qpAccessFlags)`,
        ...(opcode === 'COMP_SWAP' || opcode === 'FETCH_ADD' || opcode === 'ATOMIC_WRITE'
          ? ['remoteAddr is not a multiple of 8']
          : []),
        ...(isReadOrAtomic(opcode) ? ["our maxRdAtomic is larger than the peer's maxDestRdAtomic"] : []),
        `pathMtu differs: ours is ${context?.pathMtu ?? 'unknown'}, both ends must use the same`,
      ];
    case WcStatus.REM_ACCESS_ERR:
      return [
        'rkey is wrong, or the peer has closed that region since (keys are not reused: request the current key)',
        'remoteAddr and length reach outside the region; remoteAddr is the full address, not an offset into the region',
        `the peer's region lacks the right for ${opcode} (remoteRead, remoteWrite, remoteAtomic or flushGlobal)`,
        "the peer's region belongs to another protection domain than its queue pair",
      ];
    case WcStatus.REM_OP_ERR:
      return [
        "the peer's receive names unusable memory (its sgList, key or region)",
        "the peer's program or device failed: look at its completions and logs",
      ];
    case WcStatus.BAD_RESP_ERR:
      return ['the PSNs of the two ends may not match: sqPsn of one end must be rqPsn of the other'];
    case WcStatus.RNR_RETRY_EXC_ERR:
      return [
        'the peer posts no receives, too few, or too late: each SEND and each WRITE with immediate consumes one',
        `rnrRetry ${context?.rnrRetry ?? ''} was exhausted after ${wc.rnrs} RNR NAKs: 7 retries without limit; the peer's minRnrTimer is the delay`,
        'with flowControl at both ends a message waits for a receive instead of failing',
      ];
    case WcStatus.RETRY_EXC_ERR:
      return retryCauses(wc, context, ackTimeoutMs);
    default:
      return [];
  }
}

function retryCauses(wc: CompletionFacts, context: FailureContext | undefined, ackTimeoutMs: number): string[] {
  const list: string[] = [];
  if (wc.opcode === WcOpcode.FLUSH)
    list.push(
      "Linux rxe computes a wrong ICRC for FLUSH: if the peer is rxe, set quirks ['rxeFlushIcrc'] on the queue pair",
    );
  const drops = Object.entries(context?.drops ?? {});
  if (drops.length > 0) list.push(`this device has dropped packets: ${drops.map(dropText).join('; ')}`);
  if (wc.syndrome === 0x60) {
    list.push(
      'the peer requested the same packet repeatedly (sequence NAKs): packets from that PSN on do not arrive intact',
      `packets of pathMtu ${context?.pathMtu ?? ''} are too large for some link of the path: try a smaller pathMtu`,
      'heavy loss: the peer or a switch drops when its buffers are full',
    );
    return list;
  }
  if (context?.received === 0 || context?.received === undefined) {
    if (context?.received === 0) list.push('nothing at all came back for this queue pair since it was created');
    list.push(
      `the peer's queue pair is not in RTR or RTS yet, was closed, has another number than ${qpnText(peerQpn(context))}, or expects another source address`,
      'sqPsn here and rqPsn there do not match: the peer takes every packet for a duplicate',
      'a firewall drops UDP port 4791, at either end or between',
      'a NAT or other middlebox rewrites addresses, ports or the IP identification: the ICRC is then wrong and the peer drops silently',
      `packets of pathMtu ${context?.pathMtu ?? ''} do not fit the path, while small messages do`,
    );
  } else {
    list.push(
      `the connection worked before (${context.received} packets came): the peer vanished, its queue pair went to ERR, or the path failed`,
      `packets of pathMtu ${context.pathMtu} do not fit the path, while small ones do`,
    );
  }
  if (ackTimeoutMs > 0)
    list.push(
      `the peer takes longer than ${round(ackTimeoutMs * (context?.retryCnt ?? 0))} ms (${round(ackTimeoutMs)} ms, ${context?.retryCnt} retries): raise timeout or retryCnt`,
    );
  if (context?.link === 'memory')
    list.push('the peer runs in this process and its event loop was busy, or a fault was injected');
  return list;
}

function dropText([name, count]: [string, number]): string {
  const reason = explainDrop(name);
  return `${name} ${count}${reason === undefined ? '' : ` (${reason})`}`;
}

function isReadOrAtomic(opcode: string): boolean {
  return ['RDMA_READ', 'COMP_SWAP', 'FETCH_ADD', 'ATOMIC_WRITE', 'FLUSH'].includes(opcode);
}

function peerQpn(context: FailureContext | undefined): number {
  return context?.peer?.qpNum ?? 0;
}

function round(ms: number): number {
  return ms < 10 ? Math.round(ms * 100) / 100 : Math.round(ms);
}
