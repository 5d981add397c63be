/**
 * The conversation of one check with the connection manager of a peer: the messages of rdma_cm, which go from queue
 * pair 1 to queue pair 1, and the packets of the connections that they make. The check decides which messages it sends.
 */
import {
  cmaHeader,
  decodeMad,
  encodeMad,
  GSI_QKEY,
  gidOf,
  type Mad,
  type MadFields,
  type MadHeader,
  type MadName,
  MadSubject,
} from '../packet/mad.js';
import { datagram, type Flow, request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { PacketPort } from '../script/port.js';
import type { CmCheck } from './check.js';
import { CheckEnd, Conversation, type Received } from './conversation.js';
import type { CheckRecord } from './record.js';
import type { CmPeer, CmQueue, Target } from './target.js';

/** Nanoseconds of a millisecond. */
const MS = 1e6;
/** Time in which the program behind a service decides about a request (ns). */
const DECISION = 1000 * MS;
/** Most transmissions of a REQ. */
const REQUESTS = 3;
/** Time in which a peer answers a DREQ (ns), and how often that is sent at most, when a check ends. */
const [FAREWELL, FAREWELLS] = [300 * MS, 3];
/** Code of the response time that we tell a peer: 1.07 s. Tests of repetitions choose a shorter one. */
const RESPONSE_TIME = 18;
/**
 * Code of the ACK timeout that we tell a peer: 1.07 s. What its program sends is not acknowledged, and its retries must
 * not end before the check does.
 */
const ACK_TIMEOUT = 18;
/** READs and atomics in flight. */
const DEPTH = 16;
/** The longest time that an MRA of the peer makes us wait (ns). */
const LONGEST_SERVICE = 5000 * MS;

/** Reasons of a REJ (IBTA 12.6.7.2). */
export const Reason = {
  TIMEOUT: 4,
  INVALID_SERVICE_ID: 8,
  INVALID_TRANSPORT: 9,
  STALE_CONNECTION: 10,
  INVALID_GID: 12,
  INVALID_MTU: 26,
  CONSUMER: 28,
} as const;

/** Returns the time of a code, in nanoseconds (IBTA 12.6). */
export const timeOf = (code: number): number => 4096 * 2 ** code;

/** A message of the peer. */
export type ReceivedMad<N extends MadName = MadName> = {
  readonly [K in N]: Mad<K> & {
    readonly at: number;
    /** Its bytes. */
    readonly bytes: Uint8Array;
  };
}[N];

/** One connection with the peer, which the check has asked for. */
export class Connection {
  /** Whether a DREQ or a REJ of either end has ended it. */
  hasEnded = false;
  /** The peer's answer. */
  rep: ReceivedMad<'REP'> | undefined;
  /** Transaction id of the messages that make the connection. */
  readonly tid = random(48);

  constructor(
    /** Our queue pair number. */
    readonly queue: CmQueue,
    /** Fields of the REQ. */
    readonly req: Partial<MadFields<'REQ'>> & { readonly localCommId: number; readonly localCaGuid: bigint },
  ) {}

  /** Communication ids of our messages. */
  get ids() {
    return { localCommId: this.req.localCommId, remoteCommId: this.rep?.fields.localCommId ?? 0 };
  }
}

/** Sends messages to the connection manager of a peer, and looks at what it answers. */
export class CmConversation extends Conversation {
  /** Connections that the check has asked for. */
  readonly #connections: Connection[] = [];
  /** Ours. Peers keep connections by it, so that it must not be that of another card. */
  readonly guid = random(62) | (1n << 57n);
  #psn = 0;

  constructor(
    check: CmCheck,
    /** The peer's connection manager. */
    readonly peer: CmPeer,
    target: Target,
    record?: CheckRecord,
  ) {
    super(check, peer.port, target, record);
  }

  /** Runs a check, and ends the connections that are left of it, whatever comes of it. */
  async whole(run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } finally {
      for (const connection of this.#connections) if (!connection.hasEnded) await this.#leave(connection);
    }
  }

  /** Returns a talk of the same check over other addresses. */
  over(flow: Flow): CmConversation {
    const { peer } = this;
    const { port } = peer;
    const over: PacketPort = {
      ...{ flow, mtu: port.mtu, now: () => port.now() },
      ...{ send: (bytes) => port.send(bytes), receive: (until) => port.receive(until) },
    };
    const { service, unknownService, start } = peer;
    const there = { port: over, service, unknownService, start, queue: () => peer.queue() };
    return new CmConversation(this.check as CmCheck, there, this.target, this.record);
  }

  /** Sends a message to queue pair 1 of the peer. @returns when it left */
  tell<N extends MadName>(name: N, fields: Partial<MadFields<N>>, header: Partial<MadHeader>, qkey?: number): number {
    return this.sendMad(encodeMad(name, fields, header), qkey);
  }

  /** Sends the bytes of a datagram to queue pair 1 of the peer. @returns when it left */
  sendMad(payload: Uint8Array, qkey = GSI_QKEY): number {
    this.#psn = psnAfter(this.#psn, 1);
    return this.send(datagram.sendOnly({ psn: this.#psn, qkey, srcQp: 1, payload }));
  }

  /** Returns a connection that has not been asked for yet. @param changes fields of the REQ */
  async prepare(changes: Partial<MadFields<'REQ'>> = {}): Promise<Connection> {
    const queue = await this.peer.queue();
    const { srcIp, dstIp, pkey, hopLimit } = this.port.flow;
    const connection = new Connection(queue, {
      ...{ localCommId: Number(random(31)) + 1, serviceId: this.peer.service, localCaGuid: this.guid },
      ...{ localQpn: queue.qpn, startingPsn: Number(random(24)), pathMtu: Math.log2(this.mtu) - 7 },
      ...{ responderResources: DEPTH, initiatorDepth: DEPTH, retryCount: 7, rnrRetryCount: 7, maxCmRetries: 7 },
      ...{ remoteResponseTimeout: RESPONSE_TIME, localResponseTimeout: RESPONSE_TIME, ackTimeout: ACK_TIMEOUT, pkey },
      ...{ localLid: 0xffff, remoteLid: 0xffff, localGid: gidOf(srcIp), remoteGid: gidOf(dstIp), hopLimit },
      privateData: cmaHeader(srcIp, dstIp, 0x8000 | (queue.qpn & 0x7fff)),
      ...changes,
    });
    return connection;
  }

  /** Sends the REQ of a connection. @returns when it left */
  ask(connection: Connection, header: Partial<MadHeader> = {}, qkey?: number): number {
    if (!this.#connections.includes(connection)) this.#connections.push(connection);
    return this.tell('REQ', connection.req, { tid: connection.tid, ...header }, qkey);
  }

  /** Asks for a connection and waits for the REP. Fails when the peer refuses. */
  async connect(changes: Partial<MadFields<'REQ'>> = {}): Promise<Connection & { rep: ReceivedMad<'REP'> }> {
    const connection = await this.prepare(changes);
    for (let sent = 0; sent < REQUESTS; sent++) {
      this.ask(connection);
      const answer = await this.about(connection, DECISION);
      if (answer?.name === 'REP') return Object.assign(connection, { rep: answer });
      if (answer?.name === 'REJ' && answer.fields.reason === Reason.INVALID_SERVICE_ID)
        throw new CheckEnd('not reachable', `nobody accepts connections: start ${this.peer.start}`);
      if (answer !== undefined) this.fail(`a REQ: ${toldMad(answer)} instead of a REP`);
    }
    throw new CheckEnd('not reachable', `no answer to a REQ: start ${this.peer.start}`);
  }

  /** Says that we are ready. @returns when the RTU left */
  ready(connection: Connection): number {
    return this.tell('RTU', connection.ids, { tid: connection.tid });
  }

  /** Asks for a connection, and completes it. */
  async established(changes: Partial<MadFields<'REQ'>> = {}): Promise<Connection & { rep: ReceivedMad<'REP'> }> {
    const connection = await this.connect(changes);
    this.ready(connection);
    return connection;
  }

  /** Refuses the REP of a connection. @returns when the REJ left */
  refuse(connection: Connection, reason: number): number {
    connection.hasEnded = true;
    return this.tell('REJ', { ...connection.ids, subject: MadSubject.REP, reason }, { tid: connection.tid });
  }

  /** Ends a connection, and waits for the DREP. @returns undefined if none comes in time */
  async end(connection: Connection, patience = DECISION): Promise<ReceivedMad<'DREP'> | undefined> {
    for (let sent = 0; sent < FAREWELLS; sent++) {
      this.farewell(connection);
      const answer = await this.about(connection, patience, 'DREP');
      if (answer?.name === 'DREP') return answer;
    }
    return undefined;
  }

  /** Sends a DREQ. @returns when it left */
  farewell(connection: Connection, changes: Partial<MadFields<'DREQ'>> = {}, tid = connection.tid + 1n): number {
    connection.hasEnded = true;
    const remoteQpn = connection.rep?.fields.localQpn ?? 0;
    return this.tell('DREQ', { ...connection.ids, remoteQpn, ...changes }, { tid });
  }

  /** Returns the next message of the peer, or undefined if none comes in time. Its DREQs are answered. */
  async nextMad(within?: number): Promise<ReceivedMad | undefined> {
    const until = within === undefined ? undefined : this.port.now() + within;
    for (;;) {
      const left = until === undefined ? undefined : until - this.port.now();
      const packet = left !== undefined && left < 0 ? undefined : await this.next(left);
      if (packet === undefined) return undefined;
      const mad = decodeMad(packet.payload);
      if (mad === undefined) continue;
      const received = { ...mad, at: packet.at, bytes: packet.payload } as ReceivedMad;
      const connection = this.#connectionOf(received);
      if (connection !== undefined && received.name === 'REP') connection.rep ??= received;
      if (received.name !== 'DREQ') return received;
      this.#onDreq(received, connection);
    }
  }

  /**
   * Returns the next message about a connection, or the next one of a name, within a time. The time is longer when an
   * MRA of the peer asks for more, once.
   */
  async about(connection: Connection, within: number, name?: MadName): Promise<ReceivedMad | undefined> {
    let until = this.port.now() + within;
    let isExtended = false;
    for (;;) {
      const left = until - this.port.now();
      const mad = await this.find(left, (one) => this.#connectionOf(one) === connection);
      if (mad === undefined) return undefined;
      if (mad.name === 'REJ') connection.hasEnded = true;
      if (mad.name === 'MRA') {
        if (!isExtended) until += Math.min(timeOf(mad.fields.serviceTimeout), LONGEST_SERVICE);
        isExtended = true;
      } else if (name === undefined || mad.name === name) return mad;
    }
  }

  /** Returns the next message that is wanted within a time, however many others come; undefined if there is none. */
  async find(within: number, isWanted: (mad: ReceivedMad) => boolean): Promise<ReceivedMad | undefined> {
    const until = this.port.now() + within;
    for (;;) {
      const left = until - this.port.now();
      const mad = left > 0 ? await this.nextMad(left) : undefined;
      if (mad === undefined || isWanted(mad)) return mad;
    }
  }

  /** Sends a WRITE of no bytes on a connection's queue pair. @returns its ACK, or undefined if none comes in time */
  async write(connection: Connection, index: number, within: number): Promise<Received | undefined> {
    const { fields } = connection.rep as ReceivedMad<'REP'>;
    const port = connection.queue.port(fields.localQpn);
    const talk = new Conversation(this.check, port, this.target, this.record);
    const psn = psnAfter(fields.startingPsn, index);
    talk.send(request.write({ psn, payload: new Uint8Array(0), mtu: this.mtu, va: 0n, rkey: 0 }));
    const until = port.now() + within;
    for (;;) {
      const left = until - port.now();
      const packet = left > 0 ? await talk.next(left) : undefined;
      // services may send messages of their own
      if (packet === undefined || (packet.aeth !== undefined && packet.bth.psn === psn)) return packet;
    }
  }

  /** Returns the connection that a message is about: it has our id, or the transaction id of our messages. */
  #connectionOf({ name, header, fields }: Mad): Connection | undefined {
    return this.#connections.find(({ req, tid }) => {
      if (name !== 'SIDR_REP' && 'remoteCommId' in fields && fields.remoteCommId === req.localCommId) return true;
      return header.tid === tid || header.tid === tid + 1n;
    });
  }

  #onDreq({ header, fields }: ReceivedMad<'DREQ'>, connection: Connection | undefined): void {
    if (connection !== undefined) connection.hasEnded = true;
    const ids = { localCommId: fields.remoteCommId, remoteCommId: fields.localCommId };
    this.tell('DREP', ids, { tid: header.tid });
  }

  /** Ends what is left of a connection, so that the peer keeps nothing. */
  async #leave(connection: Connection): Promise<void> {
    if (connection.rep !== undefined) {
      await this.end(connection, FAREWELL);
      return;
    }
    const info = new Uint8Array(8);
    new DataView(info.buffer).setBigUint64(0, connection.req.localCaGuid);
    const fields = { ...connection.ids, subject: MadSubject.OTHER, reason: Reason.TIMEOUT, infoLength: 8, info };
    this.tell('REJ', fields, { tid: connection.tid });
  }
}

/** Returns a message of the peer as text. */
export function toldMad({ name, header, fields }: ReceivedMad): string {
  if (name === 'REJ') return `REJ with reason ${fields.reason}`;
  if (name === 'SIDR_REP') return `SIDR_REP with status ${fields.status}`;
  if (name === 'CLASS_PORT_INFO') return `a response with status 0x${header.status.toString(16)}`;
  return name;
}

/** Returns a random number of some bits. */
function random(bits: number): bigint {
  let value = 0n;
  for (let left = bits; left > 0; left -= 24) value = (value << 24n) | BigInt(Math.floor(Math.random() * 2 ** 24));
  return BigInt.asUintN(bits, value);
}
