/** Events of the core, with the names of rdma_cm's events. */

import type { IcmpErrorCode } from '../../errors.js';
import type { DerivedAttributes } from './derive.js';
import type { Ece } from './ece.js';
import type { PortSpaceName } from './serviceid.js';

/** IP address and port of one end of a connection (sockaddr_in, sockaddr_in6). */
export interface CmAddress {
  /** IP address as text. */
  readonly address: string;
  /** 0..65535, host byte order. */
  readonly port: number;
}

/** A client's request, from its REQ or SIDR_REQ. Depths are from the server's view, as in rdma_cm. */
export interface ConnectRequest {
  /** Port space of the service id: `TCP` for connections, `UDP` for datagram services. */
  readonly space: PortSpaceName;
  /** Transport that the client asks for. */
  readonly transport: 'RC' | 'UC' | 'UD';
  /** Address and port of the client. */
  readonly source: CmAddress;
  /** Address and port of the listener that the client asks for. */
  readonly destination: CmAddress;
  /** GID of the client's queue pair, as text. */
  readonly remoteGid: string;
  /** GID of our queue pair, as text. */
  readonly localGid: string;
  /** READs and atomics that the client will have outstanding at most, 0..255; UD: 0. */
  readonly responderResources: number;
  /** READs and atomics that the client serves at a time, 0..255; UD: 0. */
  readonly initiatorDepth: number;
  /** Retries after timeouts and sequence errors that the client asks for at both ends, 0..7; UD: 0. */
  readonly retryCnt: number;
  /** RNR retries that the client asks for at this end, 0..7, 7: without end; UD: 0. */
  readonly rnrRetry: number;
  /** The client asks for end-to-end credits; UD: false. */
  readonly flowControl: boolean;
  /** The client's queue pair has a shared receive queue; UD: false. */
  readonly srq: boolean;
  /** The client's queue pair number, 24 bits; UD: 0, unknown. */
  readonly qpNum: number;
  /** Bytes; UD: 0. */
  readonly pathMtu: number;
  /** Private data behind the rdma_cm header: 56 bytes, UD 180, padded with zeroes. The application knows its length. */
  readonly privateData: Uint8Array;
  /** Vendor options of the client (rdma_get_remote_ece); absent when there are none. */
  readonly ece?: Ece;
}

/** A server's reply, from its REP. Depths are from the client's view. */
export interface ConnectReply {
  /** READs and atomics that the server will have outstanding at most. */
  readonly responderResources: number;
  /** READs and atomics that the server serves at a time. */
  readonly initiatorDepth: number;
  /** RNR retries that the server asks for at this end, 0..7, 7: without end. */
  readonly rnrRetry: number;
  /** The server agrees to end-to-end credits. */
  readonly flowControl: boolean;
  /** The server's queue pair has a shared receive queue. */
  readonly srq: boolean;
  /** The server's queue pair number, 24 bits. */
  readonly qpNum: number;
  /** 196 bytes, padded with zeroes. */
  readonly privateData: Uint8Array;
  /** Vendor options of the server; absent when there are none. */
  readonly ece?: Ece;
  /** Attributes that bring our queue pair to RTS. */
  readonly attributes: DerivedAttributes;
}

/** An event without its id. */
export type CoreEventBody =
  | { readonly type: 'CONNECT_REQUEST'; readonly listener: number; readonly request: ConnectRequest }
  | { readonly type: 'CONNECT_RESPONSE'; readonly reply: ConnectReply }
  | { readonly type: 'ESTABLISHED'; readonly privateData: Uint8Array; readonly datagram?: DatagramPeer }
  /** A REJ has arrived. `info` is the additional rejection information. */
  | { readonly type: 'REJECTED'; readonly reason: number; readonly info: Uint8Array; readonly privateData: Uint8Array }
  /**
   * No reply has arrived after all retransmissions, or an ICMP error (both status 0), or a SIDR_REP with a status other
   * than 0.
   */
  | {
      readonly type: 'UNREACHABLE';
      readonly status: number;
      readonly privateData: Uint8Array;
      readonly icmpError?: IcmpErrorCode | undefined;
    }
  /** `reason`: of the REJ that ended the connection, or STALE_CONNECTION. `timedOut`: no DREP has arrived. */
  | {
      readonly type: 'DISCONNECTED';
      readonly privateData: Uint8Array;
      readonly timedOut: boolean;
      readonly reason: number | undefined;
    }
  | { readonly type: 'TIMEWAIT_EXIT' };

/** An event of a connection or SIDR exchange, by its id. */
export type CoreEvent = { readonly id: number } & CoreEventBody;

/** Queue pair and Q_Key of a datagram service, from its SIDR_REP. */
export interface DatagramPeer {
  readonly qpNum: number;
  readonly qkey: number;
}
