/** What a failed completion means: the facts that the card has, and what usually is the reason. */
import { nameOf, WcOpcode, WcStatus } from '../device/codes.js';
import { hex } from './check.js';
import { explainDrop } from './drops.js';

/** The facts of a completion that an explanation starts from. */
export interface Failure {
  readonly wrId: number;
  readonly status: number;
  readonly opcode: number;
  readonly qpNum: number;
  /** AETH syndrome of the last answer; 0 = none came. */
  readonly syndrome: number;
  readonly psn: number;
  /** Expired ACK timers and RNR NAKs since the last progress. */
  readonly timeouts: number;
  readonly rnrs: number;
}

/** What is known of the queue pair. */
export interface Circumstances {
  readonly peer?: { readonly address: string; readonly qpn: number };
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly pathMtu: number;
  /** The next message waits, or waited when the queue pair ended, for a receive of the peer's. */
  readonly waitsForCredits: boolean;
  /** Packets that came for this queue pair; undefined = not counted. */
  readonly received?: number;
  /** Drop counters of the device that are not 0. */
  readonly drops?: Readonly<Record<string, number>>;
  readonly link: string;
  /** The last packets of the queue pair, in words, if the device keeps them. */
  readonly packets?: () => readonly string[];
}

export interface Explanation {
  /** One line: what failed, where, how. */
  readonly summary: string;
  readonly status: string;
  /** What the peer answered, in words; 'no answer' where none came. */
  readonly syndrome: string;
  /** PSN of the packet that it is about. */
  readonly psn: number;
  readonly peer: { readonly address: string; readonly qpn: number } | undefined;
  readonly timers: {
    /** Time until an unanswered packet is sent again, ms; 0 = never. */
    readonly ackTimeoutMs: number;
    readonly timeouts: number;
    readonly retryCnt: number;
    readonly rnrNaks: number;
    readonly rnrRetry: number;
  };
  /** Most likely first. */
  readonly likelyCauses: readonly string[];
  /** The last packets of the queue pair, a line each, oldest first. Empty unless the device was opened with `trace`. */
  readonly packets: readonly string[];
}

/** Thrown by `throwIfFailed`: a completion that is not a success. */
export class WcError extends Error {
  override readonly name = 'WcError';
  /** Name of the status, e.g. `RETRY_EXC_ERR`. */
  readonly status: string;
  constructor(readonly explanation: Explanation) {
    super([explanation.summary, ...explanation.likelyCauses.map((cause) => `  - ${cause}`)].join('\n'));
    this.status = explanation.status;
  }
}

/**
 * @param wc a completion
 * @throws WcError when its status is not SUCCESS
 */
export function throwIfFailed(wc: { readonly status: number; explain(): Explanation }): void {
  if (wc.status !== WcStatus.SUCCESS) throw new WcError(wc.explain());
}

/** @internal */
export function explain(wc: Failure, known: Circumstances | undefined): Explanation {
  const status = nameOf(WcStatus, wc.status);
  const peer = known?.peer;
  const ackTimeoutMs = known === undefined || known.timeout === 0 ? 0 : 0.004096 * 2 ** known.timeout;
  const where = peer ? ` to ${peer.address} qp ${hex(peer.qpn)}` : '';
  const operation = nameOf(WcOpcode, wc.opcode);
  const summary =
    wc.status === WcStatus.SUCCESS
      ? `${operation} (wrId ${wc.wrId}) on qp ${hex(wc.qpNum)} succeeded`
      : `${operation} (wrId ${wc.wrId}) on qp ${hex(wc.qpNum)}${where} failed with ${status}: ${MEANING[status] ?? 'unknown status'}`;
  return {
    summary,
    status,
    syndrome: syndromeText(wc.syndrome),
    psn: wc.psn,
    peer,
    timers: {
      ackTimeoutMs,
      timeouts: wc.timeouts,
      retryCnt: known?.retryCnt ?? 0,
      rnrNaks: wc.rnrs,
      rnrRetry: known?.rnrRetry ?? 0,
    },
    likelyCauses: causes(wc, known, ackTimeoutMs),
    packets: known?.packets?.() ?? [],
  };
}

const MEANING: Readonly<Record<string, string>> = {
  LOC_LEN_ERR: 'a message or an answer had another length than this side had room for',
  LOC_QP_OP_ERR: 'this side could not carry out the work request',
  LOC_PROT_ERR: 'the memory that the work request names may not be used like that',
  WR_FLUSH_ERR:
    'the queue pair went to state ERR first; a request that was on its way by then may have reached the peer',
  MW_BIND_ERR: 'a memory window could not be bound',
  BAD_RESP_ERR: 'the peer answered with something that is no answer to the request',
  LOC_ACCESS_ERR: 'the receive memory does not allow what the peer did',
  REM_INV_REQ_ERR: 'the peer says that the request is invalid',
  REM_ACCESS_ERR: 'the peer refuses access to its memory',
  REM_OP_ERR: 'the peer could not complete the operation for a reason of its own',
  RETRY_EXC_ERR: 'the peer did not acknowledge, and all retries are used up',
  RNR_RETRY_EXC_ERR: 'the peer had no receive posted, and all retries are used up',
};

const NAKS = [
  'NAK: PSN sequence error',
  'NAK: invalid request',
  'NAK: remote access error',
  'NAK: remote operational error',
  'NAK: invalid RD request',
];

/** An AETH syndrome in words (InfiniBand specification 9.7.5.1). 0, an ACK with no credits, stands for no answer. */
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

function causes(wc: Failure, known: Circumstances | undefined, ackTimeoutMs: number): string[] {
  const opcode = nameOf(WcOpcode, wc.opcode);
  switch (wc.status) {
    case WcStatus.LOC_LEN_ERR:
      return wc.opcode >= WcOpcode.RECV
        ? ['the peer sent a message longer than the sgList of this receive: post larger receives']
        : ['the answer to an RDMA READ had another length than asked for: the path MTU of both ends may differ'];
    case WcStatus.MW_BIND_ERR:
      return [
        "the region lacks mwBind, or localWrite where the window's access has remoteWrite or remoteAtomic",
        'offset and length reach outside the region, or length is 0',
        'a window of type 2 is bound already: invalidate it first',
        'zeroBased is for windows of type 2 only; flushGlobal must be a right of the region too',
        'window, region and queue pair belong to different protection domains',
      ];
    case WcStatus.LOC_QP_OP_ERR:
      if (opcode === 'LOCAL_INV')
        return [
          'no fast region and no window of type 2 has this key now: it is unknown, closed already, or bound over another queue pair',
          'the region lacks the right invalidate, or memory windows are bound to it',
        ];
      if (opcode === 'REG_MR')
        return [
          'the region is registered already: invalidate it first',
          'remoteWrite and remoteAtomic need localWrite',
        ];
      return [
        'an sgList or a length that the queue pair cannot handle',
        'more READs or atomics than maxRdAtomic allows (0 allows none)',
        'the peer broke off a message in the middle',
      ];
    case WcStatus.LOC_PROT_ERR:
      return [
        'an lkey of the sgList is wrong, or its region was closed before the completion came',
        'the region belongs to another protection domain than the queue pair',
        'addr and length reach outside the region',
        ...(wc.opcode === WcOpcode.SEND || wc.opcode === WcOpcode.RDMA_WRITE
          ? []
          : ['the region lacks localWrite, which receives, READs and atomics need']),
      ];
    case WcStatus.WR_FLUSH_ERR:
      return [
        ...(known?.waitsForCredits && wc.opcode < WcOpcode.RECV
          ? [
              'the queue pair was waiting for credits (flowControl): the peer has told of no receive for the next message',
            ]
          : []),
        'an earlier request failed: the first completion of this queue pair whose status is not WR_FLUSH_ERR names the reason',
        "the peer's request was refused here; see the device's events",
        'the program moved the queue pair to ERR, or the peer has disconnected (rdma_cm)',
      ];
    case WcStatus.REM_INV_REQ_ERR:
      return [
        ...(opcode === 'SEND' ? ['the message is longer than the receive that the peer had posted'] : []),
        `the peer's queue pair does not allow ${opcode} (its qpAccessFlags)`,
        ...(opcode === 'COMP_SWAP' || opcode === 'FETCH_ADD' || opcode === 'ATOMIC_WRITE'
          ? ['remoteAddr is not a multiple of 8']
          : []),
        ...(isReadOrAtomic(opcode) ? ["our maxRdAtomic is more than the peer's maxDestRdAtomic"] : []),
        `pathMtu differs: ours is ${known?.pathMtu ?? 'unknown'}, and both ends must have the same`,
      ];
    case WcStatus.REM_ACCESS_ERR:
      return [
        "rkey is wrong, or the peer has closed that region since (keys are not reused: ask for the region's present key)",
        'remoteAddr and length reach outside the region; remoteAddr is the full address, not an offset into the region',
        `the peer's region lacks the right for ${opcode} (remoteRead, remoteWrite, remoteAtomic or flushGlobal)`,
        "the peer's region belongs to another protection domain than its queue pair",
      ];
    case WcStatus.REM_OP_ERR:
      return [
        "the memory of the peer's receive is not usable (its sgList, key or region)",
        "the peer's program or device failed: look at its completions and logs",
      ];
    case WcStatus.BAD_RESP_ERR:
      return ["the peer's transport is out of step: sqPsn and rqPsn of the two ends may not agree"];
    case WcStatus.RNR_RETRY_EXC_ERR:
      return [
        'the peer posts no receives, or too few, or posts them too late: SENDs and WRITEs with immediate each take one',
        `rnrRetry ${known?.rnrRetry ?? ''} was used up after ${wc.rnrs} RNR NAKs: 7 retries without end; the peer's minRnrTimer is the pause`,
        'with flowControl at both ends a message waits for its receive instead of being refused',
      ];
    case WcStatus.RETRY_EXC_ERR:
      return retryCauses(wc, known, ackTimeoutMs);
    default:
      return [];
  }
}

function retryCauses(wc: Failure, known: Circumstances | undefined, ackTimeoutMs: number): string[] {
  const list: string[] = [];
  if (wc.opcode === WcOpcode.FLUSH)
    list.push("the peer is Linux rxe, whose ICRC of a FLUSH is wrong: give the queue pair quirks ['rxeFlushIcrc']");
  const drops = Object.entries(known?.drops ?? {});
  if (drops.length > 0) list.push(`this device has dropped packets: ${drops.map(dropText).join('; ')}`);
  if (wc.syndrome === 0x60) {
    list.push(
      'the peer asked for the same packet again and again (sequence NAKs): packets of that PSN on do not arrive whole',
      `packets of pathMtu ${known?.pathMtu ?? ''} are larger than what some part of the path carries: try a smaller pathMtu`,
      'heavy loss: the peer or a switch drops when its buffers are full',
    );
    return list;
  }
  if (known?.received === 0 || known?.received === undefined) {
    if (known?.received === 0) list.push('nothing at all came back for this queue pair since it was created');
    list.push(
      `the peer's queue pair is not in RTR or RTS yet, was closed, has another number than ${hex(wcPeer(known))}, or expects another source address`,
      'sqPsn here and rqPsn there differ by so much that the peer takes every packet for an old one',
      'a firewall drops UDP port 4791, on the way or at either end',
      'a NAT or other middlebox rewrites addresses, ports or the IP identification: the ICRC then fails and the peer drops silently',
      `packets of pathMtu ${known?.pathMtu ?? ''} do not fit the path; small messages would arrive`,
    );
  } else {
    list.push(
      `the connection worked before (${known.received} packets came): the peer went away, its queue pair went to ERR, or the path broke`,
      `packets of pathMtu ${known.pathMtu} do not fit the path, while small ones do`,
    );
  }
  if (ackTimeoutMs > 0)
    list.push(
      `the peer needs longer than ${round(ackTimeoutMs * (known?.retryCnt ?? 0))} ms (${round(ackTimeoutMs)} ms, ${known?.retryCnt} retries): raise timeout or retryCnt`,
    );
  if (known?.link === 'memory')
    list.push('the peer runs in this process and had no turn: its event loop was busy, or a fault was injected');
  return list;
}

function dropText([name, count]: [string, number]): string {
  const reason = explainDrop(name);
  return `${name} ${count}${reason === undefined ? '' : ` (${reason})`}`;
}

function isReadOrAtomic(opcode: string): boolean {
  return ['RDMA_READ', 'COMP_SWAP', 'FETCH_ADD', 'ATOMIC_WRITE', 'FLUSH'].includes(opcode);
}

function wcPeer(known: Circumstances | undefined): number {
  return known?.peer?.qpn ?? 0;
}

function round(ms: number): number {
  return ms < 10 ? Math.round(ms * 100) / 100 : Math.round(ms);
}
