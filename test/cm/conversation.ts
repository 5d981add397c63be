/** A core in conversation with a simulated peer, in virtual time. The peer's messages come from mads.ts. */
import type { ConnectParameters } from '../../src/cm/core/active.js';
import { CmCore } from '../../src/cm/core/core.js';
import type { CoreEvent } from '../../src/cm/core/events.js';
import { parseMad } from '../../src/cm/core/mad.js';
import type { Message, MessageName } from '../../src/cm/core/messages.js';
import type { AcceptParameters } from '../../src/cm/core/passive.js';
import type { ConnectionState } from '../../src/cm/core/states.js';
import { Random } from '../kit/random.js';
import * as mads from './mads.js';

/** CA GUID of the core. */
export const OUR_GUID = 0x0200_00ff_fe00_0001n;
/** Queue pair number of our end. */
export const OUR_QPN = 0x60;
/** Communication id of the peer in the conversations below. */
export const PEER_ID = mads.REQ.id;

/** Parameters of a REQ of ours. */
export const CONNECT: ConnectParameters = {
  space: 'TCP',
  transport: 'RC',
  source: { address: mads.OUR_ADDRESS, port: 50000 },
  destination: { address: mads.PEER_ADDRESS, port: 7174 },
  qpNum: OUR_QPN,
  startingPsn: 0x123,
  responderResources: 8,
  initiatorDepth: 6,
  retryCnt: 7,
  rnrRetry: 7,
  flowControl: false,
  srq: false,
  pathMtu: 1024,
  hopLimit: 64,
  trafficClass: 0,
  sl: 0,
  packetLifeTime: 16,
  privateData: new Uint8Array(0),
};

/** Parameters of a REP of ours. */
export const ACCEPT: AcceptParameters = {
  qpNum: OUR_QPN,
  startingPsn: 0x456,
  responderResources: 2,
  initiatorDepth: 4,
  rnrRetry: 7,
  flowControl: false,
  srq: false,
  privateData: new Uint8Array(0),
};

/** Methods that return `this` can be chained. */
export class Conversation {
  now = 1000;
  readonly core: CmCore;
  /** Id of the connection under test. */
  id = 0;
  readonly listener: number;

  constructor({
    backlog = 100,
    transport = 'RC' as 'RC' | 'UC',
    maxMtu = 4096,
    maxConnections = 100_000,
    maxEndedConnections = 100_000,
  } = {}) {
    const random = new Random(5);
    this.core = new CmCore({
      guid: OUR_GUID,
      random: () => random.u32(),
      host: { isLocal: (gid) => gid === `::ffff:${mads.OUR_ADDRESS}`, maxMtu },
      maxConnections,
      maxEndedConnections,
    });
    this.listener = this.core.listen({ space: 'TCP', port: 7174, transport, backlog });
  }

  get state(): ConnectionState | 'CLOSED' {
    return this.core.stateOf(this.id) ?? 'CLOSED';
  }

  /** Communication ids for a message of the peer about this connection. */
  get ids(): mads.Ids {
    return { tid: mads.REQ.tid, id: PEER_ID, remote: this.id };
  }

  /** Queue pair number of the peer in this connection. */
  peerQpn: number = mads.REQ.qpn;

  /** Address that messages to us come from. */
  source: string = mads.PEER_ADDRESS;

  /** Whether the message received last has changed a connection. */
  hasChanged = false;

  receive(bytes: Uint8Array): this {
    this.hasChanged = this.core.receive(bytes, { local: mads.OUR_ADDRESS, remote: this.source }, this.now);
    return this;
  }

  /** Advances the time. Deadlines are handled at their own time. */
  wait(ms: number): this {
    const end = this.now + ms;
    while (this.core.nextDeadline() <= end) {
      this.now = this.core.nextDeadline();
      this.core.expire(this.now);
    }
    this.now = end;
    this.core.expire(end);
    return this;
  }

  /** Advances the time to the next deadline. @returns milliseconds */
  untilDeadline(): number {
    const waited = this.core.nextDeadline() - this.now;
    this.now = this.core.nextDeadline();
    this.core.expire(this.now);
    return waited;
  }

  /** Returns the messages that were sent since the last call. */
  sent(): Message[] {
    return this.core.takeMessages().map(({ bytes }) => {
      const message = parseMad(bytes);
      if (typeof message === 'string') throw new Error(`ours is malformed: ${message}`);
      return message;
    });
  }

  /** Returns the only message that was sent since the last call. @throws when there are others, or none */
  sentOne<N extends MessageName>(name: N): Message<N> {
    const all = this.sent();
    const [only] = all;
    if (all.length !== 1 || only?.name !== name)
      throw new Error(`sent ${all.map((m) => m.name).join(', ') || 'nothing'}, not ${name}`);
    return only as unknown as Message<N>;
  }

  /** Returns the events since the last call. */
  events(): CoreEvent[] {
    return this.core.takeEvents();
  }

  /** Returns the only event since the last call. @throws when there are others, or none */
  event<T extends CoreEvent['type']>(type: T): Extract<CoreEvent, { type: T }> {
    const all = this.events();
    const [only] = all;
    if (all.length !== 1 || only?.type !== type)
      throw new Error(`events ${all.map((e) => e.type).join(', ') || 'nothing'}, not ${type}`);
    return only as Extract<CoreEvent, { type: T }>;
  }

  /** Drops the messages and events so far. */
  discard(): this {
    this.sent();
    this.events();
    return this;
  }

  // ---- steps of a conversation ----

  connect(changes: Partial<ConnectParameters> = {}): this {
    this.peerQpn = mads.REP.qpn;
    this.id = this.core.connect({ ...CONNECT, ...changes }, this.now);
    return this;
  }

  /** The peer sends a REQ. */
  request(changes: Partial<mads.ReqFields> = {}): this {
    this.receive(mads.req(changes));
    const event = this.core.takeEvents().find(({ type }) => type === 'CONNECT_REQUEST');
    if (event === undefined) throw new Error('no request');
    this.id = event.id;
    return this;
  }

  /** The peer sends a REP. */
  reply(changes: Partial<mads.RepFields> = {}): this {
    return this.receive(mads.rep({ ...this.ids, ...changes }));
  }

  accept(changes: Partial<AcceptParameters> = {}): this {
    this.core.accept(this.id, { ...ACCEPT, ...changes }, this.now);
    return this;
  }

  establish(): this {
    this.core.establish(this.id, new Uint8Array(0), this.now);
    return this;
  }

  disconnect(): this {
    this.core.disconnect(this.id, this.now);
    return this;
  }

  reject(): this {
    this.core.reject(this.id, this.now);
    return this;
  }

  rtu(): this {
    return this.receive(mads.rtu(this.ids));
  }
  dreq(): this {
    return this.receive(mads.dreq({ ...this.ids, qpn: OUR_QPN }));
  }
  drep(): this {
    return this.receive(mads.drep(this.ids));
  }
}

/** Creates a conversation in each state, by role and state. */
export const CONVERSATIONS = {
  'active REQ_SENT': () => new Conversation().connect(),
  'active REP_RCVD': () => new Conversation().connect().reply(),
  'active ESTABLISHED': () => new Conversation().connect().reply().establish(),
  'active DREQ_SENT': () => new Conversation().connect().reply().establish().disconnect(),
  'active DREQ_RCVD': () => new Conversation().connect().reply().establish().dreq(),
  'active TIMEWAIT': () => new Conversation().connect().reply().establish().disconnect().drep(),
  'passive REQ_RCVD': () => new Conversation().request(),
  'passive REJ_SENT': () => new Conversation().request().reject(),
  'passive REP_SENT': () => new Conversation().request().accept(),
  'passive ESTABLISHED': () => new Conversation().request().accept().rtu(),
  'passive DREQ_SENT': () => new Conversation().request().accept().rtu().disconnect(),
  'passive DREQ_RCVD': () => new Conversation().request().accept().rtu().dreq(),
  'passive TIMEWAIT': () => new Conversation().request().accept().rtu().dreq().disconnect(),
} as const;

export type RoleAndState = keyof typeof CONVERSATIONS;

/** Returns a new conversation in a state, without pending messages and events. */
export function inState(way: RoleAndState): Conversation {
  const talk = CONVERSATIONS[way]();
  if (!way.endsWith(` ${talk.state}`)) throw new Error(`${way}: the state is ${talk.state}`);
  return talk.discard();
}
