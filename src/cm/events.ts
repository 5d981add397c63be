/** What the core tells, with the names of rdma_cm's events. */

import type { DerivedAttributes } from './derive.js';
import type { PortSpaceName } from './serviceid.js';

/** An end of a connection as rdma_cm sees it. */
export interface CmAddress {
  /** IP address as text. */
  readonly address: string;
  readonly port: number;
}

/** What a client asks for. Depths are given from the view of the one who reads this, as rdma_cm does. */
export interface ConnectRequest {
  readonly space: PortSpaceName;
  readonly transport: 'RC' | 'UC' | 'UD';
  /** The client's address, and ours. */
  readonly source: CmAddress;
  readonly destination: CmAddress;
  /** GIDs, as text, that the two queue pairs would use. */
  readonly remoteGid: string;
  readonly localGid: string;
  /** READs and atomics that the client will have outstanding at most, and those that it serves. Of UD: 0. */
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly retryCount: number;
  readonly rnrRetryCount: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  /** The client's queue pair; of UD unknown, 0. */
  readonly qpNum: number;
  /** Bytes; of UD 0. */
  readonly pathMtu: number;
  /** All that fits, padded with zeroes: how much of it means something, programs must know. */
  readonly privateData: Uint8Array;
}

/** What the server answered. */
export interface ConnectReply {
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly rnrRetryCount: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  readonly qpNum: number;
  readonly privateData: Uint8Array;
  readonly attributes: DerivedAttributes;
}

export type CoreEvent = { readonly id: number } & (
  | { readonly type: 'CONNECT_REQUEST'; readonly listener: number; readonly request: ConnectRequest }
  | { readonly type: 'CONNECT_RESPONSE'; readonly reply: ConnectReply }
  | { readonly type: 'ESTABLISHED'; readonly privateData: Uint8Array; readonly datagram?: DatagramPeer }
  /** Refused, by a REJ or a SIDR_REP. `info` is the additional information of the reason. */
  | { readonly type: 'REJECTED'; readonly reason: number; readonly info: Uint8Array; readonly privateData: Uint8Array }
  /** Nobody answered, however often it was asked; of UD also: answered with a status other than 0. */
  | { readonly type: 'UNREACHABLE'; readonly status: number; readonly privateData: Uint8Array }
  /** `reason`: of the REJ that ended it, or STALE_CONNECTION when the peer has forgotten it. `timedOut`: it never answered. */
  | {
      readonly type: 'DISCONNECTED';
      readonly privateData: Uint8Array;
      readonly timedOut: boolean;
      readonly reason: number | undefined;
    }
  | { readonly type: 'TIMEWAIT_EXIT' }
);

/** Where datagrams for a service go. */
export interface DatagramPeer {
  readonly qpNum: number;
  readonly qkey: number;
}
