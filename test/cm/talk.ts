/** A core in conversation with a peer that the test plays, in virtual time. The peer's messages come from mads.ts. */
import type { ConnectParameters } from '../../src/cm/active.js';
import { CmCore } from '../../src/cm/core.js';
import type { CoreEvent } from '../../src/cm/events.js';
import { parseMad } from '../../src/cm/mad.js';
import type { Message, MessageName } from '../../src/cm/messages.js';
import type { AcceptParameters } from '../../src/cm/passive.js';
import type { ConnectionState } from '../../src/cm/states.js';
import { Random } from '../kit/random.js';
import * as mads from './mads.js';

export const OUR_GUID = 0x0200_00ff_fe00_0001n;
export const OUR_QPN = 0x60;
/** Communication id of the peer in the conversations below. */
export const PEER_ID = mads.REQ.id;

export const CONNECT: ConnectParameters = {
  space: 'TCP',
  transport: 'RC',
  source: { address: mads.OUR_ADDRESS, port: 50000 },
  destination: { address: mads.PEER_ADDRESS, port: 7174 },
  qpNum: OUR_QPN,
  startingPsn: 0x123,
  responderResources: 8,
  initiatorDepth: 6,
  retryCount: 7,
  rnrRetryCount: 7,
  flowControl: false,
  srq: false,
  pathMtu: 1024,
  hopLimit: 64,
  trafficClass: 0,
  packetLifeTime: 16,
  privateData: new Uint8Array(0),
};

export const ACCEPT: AcceptParameters = {
  qpNum: OUR_QPN,
  startingPsn: 0x456,
  responderResources: 2,
  initiatorDepth: 4,
  rnrRetryCount: 7,
  flowControl: false,
  srq: false,
  privateData: new Uint8Array(0),
};

export class Talk {
  now = 1000;
  readonly core: CmCore;
  /** The connection that the test is about. */
  id = 0;
  readonly listener: number;

  constructor({ backlog = 100, transport = 'RC' as 'RC' | 'UC', maxMtu = 4096 } = {}) {
    const random = new Random(5);
    this.core = new CmCore({
      guid: OUR_GUID,
      random: () => random.u32(),
      host: { isLocal: (gid) => gid === `::ffff:${mads.OUR_ADDRESS}`, maxMtu },
    });
    this.listener = this.core.listen({ space: 'TCP', port: 7174, transport, backlog });
  }

  get state(): ConnectionState | 'CLOSED' {
    return this.core.stateOf(this.id) ?? 'CLOSED';
  }

  /** Ids of a message from the peer about this connection. */
  get ids(): mads.Ids {
    return { tid: mads.REQ.tid, id: PEER_ID, remote: this.id };
  }

  /** The queue pair of the peer in this connection. */
  peerQpn: number = mads.REQ.qpn;

  hear(bytes: Uint8Array): this {
    this.core.receive(bytes, { local: mads.OUR_ADDRESS, remote: mads.PEER_ADDRESS }, this.now);
    return this;
  }

  /** Time passes; deadlines take effect at their own time. */
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

  /** Time passes up to the next deadline. */
  untilDeadline(): number {
    const waited = this.core.nextDeadline() - this.now;
    this.now = this.core.nextDeadline();
    this.core.expire(this.now);
    return waited;
  }

  said(): Message[] {
    return this.core.takeMessages().map(({ bytes }) => {
      const message = parseMad(bytes);
      if (typeof message === 'string') throw new Error(`ours is malformed: ${message}`);
      return message;
    });
  }

  /** The one message that was said since last asked. */
  saidOne<N extends MessageName>(name: N): Message<N> {
    const all = this.said();
    const [only] = all;
    if (all.length !== 1 || only?.name !== name)
      throw new Error(`said ${all.map((m) => m.name).join(', ') || 'nothing'}, not ${name}`);
    return only as unknown as Message<N>;
  }

  told(): CoreEvent[] {
    return this.core.takeEvents();
  }

  toldOne<T extends CoreEvent['type']>(type: T): Extract<CoreEvent, { type: T }> {
    const all = this.told();
    const [only] = all;
    if (all.length !== 1 || only?.type !== type)
      throw new Error(`told ${all.map((e) => e.type).join(', ') || 'nothing'}, not ${type}`);
    return only as Extract<CoreEvent, { type: T }>;
  }

  /** What was said and told is of no interest. */
  quiet(): this {
    this.said();
    this.told();
    return this;
  }

  // ---- the way into every state ----

  connect(changes: Partial<ConnectParameters> = {}): this {
    this.peerQpn = mads.REP.qpn;
    this.id = this.core.connect({ ...CONNECT, ...changes }, this.now);
    return this;
  }

  request(changes: Partial<mads.ReqFields> = {}): this {
    this.hear(mads.req(changes));
    const event = this.core.takeEvents().find(({ type }) => type === 'CONNECT_REQUEST');
    if (event === undefined) throw new Error('no request');
    this.id = event.id;
    return this;
  }

  /** The active side gets its reply. */
  reply(changes: Partial<mads.RepFields> = {}): this {
    return this.hear(mads.rep({ ...this.ids, ...changes }));
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
    return this.hear(mads.rtu(this.ids));
  }
  dreq(): this {
    return this.hear(mads.dreq({ ...this.ids, qpn: OUR_QPN }));
  }
  drep(): this {
    return this.hear(mads.drep(this.ids));
  }
}

/** A new conversation in each state, by role and state. */
export const WAYS = {
  'active REQ_SENT': () => new Talk().connect(),
  'active REP_RCVD': () => new Talk().connect().reply(),
  'active ESTABLISHED': () => new Talk().connect().reply().establish(),
  'active DREQ_SENT': () => new Talk().connect().reply().establish().disconnect(),
  'active DREQ_RCVD': () => new Talk().connect().reply().establish().dreq(),
  'active TIMEWAIT': () => new Talk().connect().reply().establish().disconnect().drep(),
  'passive REQ_RCVD': () => new Talk().request(),
  'passive REJ_SENT': () => new Talk().request().reject(),
  'passive REP_SENT': () => new Talk().request().accept(),
  'passive ESTABLISHED': () => new Talk().request().accept().rtu(),
  'passive DREQ_SENT': () => new Talk().request().accept().rtu().disconnect(),
  'passive DREQ_RCVD': () => new Talk().request().accept().rtu().dreq(),
  'passive TIMEWAIT': () => new Talk().request().accept().rtu().dreq().disconnect(),
} as const;

export type Way = keyof typeof WAYS;

export function inState(way: Way): Talk {
  const talk = WAYS[way]();
  if (!way.endsWith(` ${talk.state}`)) throw new Error(`${way}: the state is ${talk.state}`);
  return talk.quiet();
}
