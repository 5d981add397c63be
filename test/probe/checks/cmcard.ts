/** The connection manager of our own card, and its queue pairs, as the target of checks in virtual time. */

import { gidText } from '../../../src/base/gid.js';
import { CmCore } from '../../../src/cm/core/core.js';
import type { CoreEvent } from '../../../src/cm/core/events.js';
import { serviceId } from '../../../src/cm/core/serviceid.js';
import type { CmPeer, CmQueue } from '../../../src/probe/checks/target.js';
import { decode } from '../../../src/probe/packet/decode.js';
import { GSI_QKEY } from '../../../src/probe/packet/mad.js';
import { datagram, encodeFrame, type Flow, flowOf, reverse } from '../../../src/probe/packet/packets.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import { Random } from '../../kit/random.js';
import type { Rig, RigQp } from '../../kit/rig.js';

const MTU = 1024;
const [PORT, UNKNOWN_PORT] = [7472, 7473];
const MS = 1e6;
/** Code of the state ERR. */
const ERR = 6;

/** A program that accepts every connection, and disconnects when its client does. */
export class CmCard implements CmPeer {
  readonly service = serviceId('TCP', PORT);
  readonly unknownService = serviceId('TCP', UNKNOWN_PORT);
  readonly start = 'a program';
  readonly port: VirtualPort;
  readonly #there = flowOf({ srcQp: 1, destQp: 1 });
  readonly #core: CmCore;
  readonly #random = new Random(7);
  /** By the number of the check's queue pair. */
  readonly #ports = new Map<number, VirtualPort>();
  /** By their ids in the core. */
  readonly #qps = new Map<number, RigQp>();
  #queues = 0x800;
  now = 1_000_000_000;

  constructor(readonly rig: Rig) {
    const local = gidText(this.#there.dstIp);
    const host = { isLocal: (gid: string) => gid === local, maxMtu: MTU };
    const random = () => this.#random.below(2 ** 32);
    this.#core = new CmCore({ guid: 0x0200_00ff_fe00_0001n, random, host });
    this.#core.listen({ space: 'TCP', port: PORT, transport: 'RC', backlog: 128 });
    this.port = this.#open(this.#there);
  }

  async queue(): Promise<CmQueue> {
    const qpn = this.#queues++;
    const sport = 0xc000 + qpn;
    return { qpn, port: (destQp) => this.#open({ ...this.#there, srcQp: qpn, destQp, sport }) };
  }

  /** Handles a frame of the check. */
  take(bytes: Uint8Array): void {
    const { bth, deth, payload } = decode(bytes);
    // queue pair 1 of a card drops it
    if (deth !== undefined && deth.qkey !== GSI_QKEY) return;
    if (bth.destQp === 1) {
      const { dstIp, srcIp } = this.#there;
      this.#core.receive(payload, { local: gidText(dstIp), remote: gidText(srcIp) }, this.now / MS);
      this.#turn();
    } else {
      this.#sort(this.rig.in(this.now, bytes));
      const id = [...this.#qps].find(([, { qpn }]) => qpn === bth.destQp)?.[0];
      if (this.rig.events().includes('COMM_EST') && id !== undefined)
        this.#core.communicationEstablished(id, this.now / MS);
      this.#turn();
    }
  }

  /** Lets time pass until something is due, at most until then. */
  pass(until: number): void {
    const own = this.rig.x.nextDeadline();
    const cm = this.#core.nextDeadline() * MS;
    const next = Math.min(own === 0 ? until : own, cm, until);
    this.now = Math.max(this.now, next);
    this.#sort(this.rig.out(this.now));
    this.#core.expire(this.now / MS);
    this.#turn();
  }

  #open(there: Flow): VirtualPort {
    const port = new VirtualPort(this, there);
    this.#ports.set(there.srcQp, port);
    return port;
  }

  #turn(): void {
    for (const event of this.#core.takeEvents()) this.#onEvent(event);
    for (const { bytes } of this.#core.takeMessages()) {
      const mad = datagram.sendOnly({ psn: 0, qkey: GSI_QKEY, srcQp: 1, payload: bytes });
      this.#sort([encodeFrame(reverse(this.#there), mad)]);
    }
  }

  #onEvent(event: CoreEvent): void {
    const { id } = event;
    if (event.type === 'CONNECT_REQUEST') {
      const qp = this.rig.qp();
      const { responderResources, initiatorDepth, rnrRetry } = event.request;
      const ours = { qpNum: qp.qpn, startingPsn: this.#random.below(2 ** 24), privateData: new Uint8Array(0) };
      const more = { responderResources, initiatorDepth, rnrRetry, flowControl: false, srq: false };
      const { rtr, rts } = this.#core.prepareAccept(id, { ...ours, ...more });
      qp.connect({ destQpn: rtr.destQpNum, rqPsn: rtr.rqPsn, sqPsn: rts.sqPsn, until: 'RTR' });
      this.#qps.set(id, qp);
      this.#core.accept(id, { ...ours, ...more }, this.now / MS);
      return;
    }
    if (event.type === 'ESTABLISHED' || event.type === 'TIMEWAIT_EXIT') return;
    this.#qps.get(id)?.modify({ STATE: ERR });
    if (event.type === 'DISCONNECTED') this.#core.disconnect(id, this.now / MS);
  }

  #sort(frames: readonly Uint8Array[]): void {
    for (const bytes of frames)
      this.#ports.get(decode(bytes).bth.destQp)?.arrivals.push({ frame: bytes, at: this.now });
  }
}

class VirtualPort implements PacketPort {
  readonly mtu = MTU;
  readonly arrivals: Arrival[] = [];

  constructor(
    readonly card: CmCard,
    readonly flow: Flow,
  ) {}

  now(): number {
    return this.card.now;
  }

  send(bytes: Uint8Array): number {
    this.card.take(bytes);
    return this.card.now;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      const first = this.arrivals.shift();
      if (first !== undefined) return first;
      if (this.card.now >= until) return undefined;
      this.card.pass(until);
    }
  }
}
