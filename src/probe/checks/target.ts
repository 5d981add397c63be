/** A peer that checks run against: its queue pairs, its memory and its connection manager. */
import type { Flow } from '../packet/packets.js';
import type { PacketPort } from '../script/port.js';

/** Memory of the peer that requests may name. */
export interface PeerRegion {
  /** Address of the first byte, as requests give it. */
  readonly va: bigint;
  /** Remote key. */
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
  /** Whether the peer may have more memory behind it, so that its end cannot be tested. */
  readonly isLonger?: boolean;
}

/** An operation on the memory of a peer, which has to permit it. */
export type RemoteOperation = 'WRITE' | 'READ' | 'ATOMIC';

/** An operation that a check may request. */
export type Operation = RemoteOperation | 'SEND';

/** A queue pair of the peer that answers our requests. */
export interface Responder {
  /** Sends to the queue pair and receives its packets; `flow` has its address and number. */
  readonly port: PacketPort;
  /** The PSN of the first request that it expects. */
  readonly psn: number;
  /** Memory that requests may name: at least 16 KiB from an address that is a multiple of 4096. */
  readonly region: PeerRegion;
  /** The operations that the queue pair and the memory permit; SENDs need `receives`. Absent: all of them. */
  readonly permits?: readonly RemoteOperation[];
  /** Memory with the right to READ only. Absent: the peer offers none. */
  readonly readOnly?: PeerRegion;
  /** Number of receives that it has posted. */
  readonly receives: number;
  /** Bytes that one of its receives takes. */
  readonly receiveBytes: number;
  /** READs and atomic operations that it takes at once. Absent: unknown. */
  readonly resources?: number;
  /** Code of the timer that its RNR NAKs have to carry, from 0 to 31. Absent: unknown. */
  readonly rnrTimer?: number;
  /** Whether both ends have agreed to end-to-end flow control. Absent: unknown. */
  readonly hasFlowControl?: boolean;
}

/** Requirements of a check on a new queue pair of the peer. */
export interface ResponderOptions {
  /** The PSN of our first request. Absent: the target chooses. */
  readonly psn?: number;
  /** Path MTU of the connection, in bytes. A target that has no choice leaves it out. Absent: the target chooses. */
  readonly mtu?: number;
  /** Whether the check needs receives that the peer has posted. */
  readonly receives: boolean;
  /** Whether the peer must not have posted any receive. */
  readonly noReceives?: boolean;
  /** Operations that the peer has to permit, all of them. Absent: WRITE, READ and ATOMIC, unless there is `anyOf`. */
  readonly permits?: readonly RemoteOperation[];
  /** Operations of which the peer has to permit one; of SEND it is enough to have posted receives. */
  readonly anyOf?: readonly Operation[];
}

/** Returns whether a queue pair that permits some operations is good enough for a check. */
export function isPermitted(
  { receives, noReceives, anyOf, permits = anyOf ? [] : ['WRITE', 'READ', 'ATOMIC'] }: ResponderOptions,
  offered: readonly Operation[],
): boolean {
  if (receives && !offered.includes('SEND')) return false;
  if (noReceives && offered.includes('SEND')) return false;
  return permits.every((one) => offered.includes(one)) && (anyOf?.some((one) => offered.includes(one)) ?? true);
}

/** A kind of requests that a peer sends. */
export type Traffic = 'SEND' | 'WRITE' | 'READ';

/** Messages that a peer is asked to send. */
export interface TrafficRequest {
  /** Their kind, one of those that the peer offers. */
  readonly opcode: Traffic;
  /** Bytes of each. A peer whose messages have one size sends that. */
  readonly length: number;
  /** Number of messages. A peer that sends without end goes on. */
  readonly count: number;
}

/** Messages of a peer that the target completes itself, because no check has asked for them. */
export interface Background {
  /** Their number so far. ACKs count them, too. */
  readonly count: number;
  /** Returns the PSN behind those that begin at a PSN; the same PSN, if none does. */
  behind(psn: number): number;
}

/** A queue pair of the peer that sends requests to us. */
export interface Requester {
  /** Sends to the queue pair and receives its packets; `flow` has its address and number. */
  readonly port: PacketPort;
  /** The PSN of its first request. */
  readonly psn: number;
  /** Memory of ours that its WRITEs and READs name. */
  readonly region: PeerRegion;
  /** Kinds of requests that it can send. */
  readonly offers: readonly Traffic[];
  /** Code of its ACK timeout, from 0 to 31: 4.096 us times two to the power of it. Absent: unknown. */
  readonly timeout?: number;
  /** Its retries after a timeout or a NAK, from 0 to 7. Absent: unknown. */
  readonly retryCnt?: number;
  /** Its retries after an RNR NAK, from 0 to 7; 7 is for ever. Absent: unknown. */
  readonly rnrRetry?: number;
  /** Whether it heeds the credits of ACKs. Absent: unknown. */
  readonly hasFlowControl?: boolean;
  /** Whether it waits for the end of each message before it sends the next one. Absent: no. */
  readonly isOneByOne?: boolean;
  /** Whether it sends messages of its own kind and length, whatever it is asked for. Absent: no. */
  readonly isEndless?: boolean;
  /** The messages that the target completes. Absent: none. */
  readonly background?: Background;
  /**
   * Makes it send messages, after those that it has been asked for before. It does not wait until they are sent.
   * @returns when the peer was asked: nanoseconds of the port's clock
   */
  request(messages: TrafficRequest): number;
}

/** Requirements on a new queue pair of the peer that sends requests. A target that cannot choose ignores them. */
export interface RequesterOptions {
  /** The check asks for messages of one of these kinds. */
  readonly anyOf: readonly Traffic[];
  /** Code of the ACK timeout. Absent: the target chooses. */
  readonly timeout?: number;
  /** Number of retries after a timeout or a NAK. Absent: the target chooses. */
  readonly retryCnt?: number;
  /** Number of retries after an RNR NAK. Absent: the target chooses. */
  readonly rnrRetry?: number;
  /** Whether the peer has to heed the credits of ACKs. Absent: no. */
  readonly flowControl?: boolean;
}

/** A queue pair number of ours that a check of a connection manager gives the peer. */
export interface CmQueue {
  /** The number. No queue pair of the card is behind it. */
  readonly qpn: number;
  /** Returns the port to a queue pair of the peer, which is connected with this one. */
  port(destQpn: number): PacketPort;
}

/** A way from an address of ours to one of the peer's. */
export interface CmWay {
  /** Our address. */
  readonly from: string;
  /** The peer's address. */
  readonly to: string;
  /** Returns the addresses of packets from our queue pair 1 to the peer's. @throws Error when the way is not found */
  flow(): Promise<Flow>;
}

/** The connection manager of a peer. */
export interface CmPeer {
  /** Sends to queue pair 1 of the peer, and receives what the peer answers to this port. */
  readonly port: PacketPort;
  /** Service id on which a program of the peer accepts connections. */
  readonly service: bigint;
  /** Service id that no program of the peer serves. */
  readonly unknownService: bigint;
  /** The program that has to run on the peer so that it accepts connections. */
  readonly start: string;
  /** Ways from each address of ours to each of the peer's that it can reach. Absent: that of `port` alone. */
  readonly ways?: readonly CmWay[];
  /** Returns a new queue pair number of ours. */
  queue(): Promise<CmQueue>;
}

/** Requirements of a check on a peer's connection manager. */
export interface CmOptions {
  /** Whether the check needs a service that accepts connections. */
  readonly service: boolean;
}

/** A peer that checks run against. */
export interface Target {
  /**
   * Connects a new queue pair of the peer, which answers our requests.
   * @returns the program to start on the peer, when it does not offer such a queue pair
   */
  responder(options: ResponderOptions): Promise<Responder | string>;
  /**
   * Connects a new queue pair of the peer, which sends requests to us. Absent: the peer cannot be made to send any.
   * @returns the program to start on the peer, when it does not offer such a queue pair
   */
  requester?(options: RequesterOptions): Promise<Requester | string>;
  /**
   * Returns the connection manager of the peer. Absent: the target does not reach it.
   * @returns the program to start on the peer, when it has no such service
   */
  cm?(options: CmOptions): Promise<CmPeer | string>;
  /** Ends the connections that were made since the last call. Called after each check. */
  release?(): Promise<void>;
  /**
   * Tries again what the peer has answered before. Called when a check ends without a packet of the peer. Absent: the
   * target cannot tell.
   * @returns false when the peer answers nothing any more
   */
  answers?(): Promise<boolean>;
}
