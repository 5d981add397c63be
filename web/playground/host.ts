/** One end of the playground: a card on the wire, and what a program has of it: a queue pair, regions, receives. */
import { Card } from '../../src/device/card.js';
import { Faults } from '../../src/verbs/diagnose/faults.js';
import { Context } from '../../src/verbs/objects/context.js';
import type { Cq } from '../../src/verbs/objects/cq.js';
import type { Mr } from '../../src/verbs/objects/mr.js';
import type { Pd } from '../../src/verbs/objects/pd.js';
import type { Qp } from '../../src/verbs/objects/qp.js';
import type { Wc } from '../../src/verbs/work/wc.js';
import type { NetworkLink } from './network.js';
import { type VirtualClock, VirtualEngine } from './virtualclock.js';

/** Operations that one end may have in progress; each has a slot of its own in each region. */
export const SLOTS = 16;
/** The largest message. */
export const SLOT_BYTES = 256 * 1024;
const CARD_BYTES = 32 * 2 ** 20;
const ALL = ['localWrite', 'remoteWrite', 'remoteRead', 'remoteAtomic'] as const;

/** A message that has arrived. */
export interface Message {
  readonly data: Uint8Array;
  readonly immData: number | undefined;
}

/** Parameters that both ends agree on. */
export interface ConnectionOptions {
  readonly pathMtu: number;
  readonly windowLimit: number;
}

/** One end: a device with one connected queue pair. */
export class Host {
  /** Messages that have arrived on this connection and that nobody has taken, by their number. */
  readonly messages = new Map<number, Message>();
  /** The message that has arrived last. */
  lastMessage: Message | undefined;
  #arrived = 0;
  /** Whether every message finds a receive. */
  #postsReceives = true;
  #receives = new Set<number>();

  private constructor(
    readonly device: Context,
    readonly qp: Qp,
    readonly sendCq: Cq,
    readonly recvCq: Cq,
    /** Own data: what is sent, and where READs and atomics put their results. */
    readonly own: Mr,
    /** Memory that the peer reads and writes. */
    readonly target: Mr,
    /** Memory for messages that arrive. */
    readonly inbox: Mr,
    /** The peer's atomics add to it. */
    readonly counter: Mr,
  ) {}

  /** Opens a card on an end of the network. */
  static async open(clock: VirtualClock, link: NetworkLink): Promise<Host> {
    // the same keys and numbers in every page: nothing here is worth a secret
    const seed = new Uint8Array(32).fill(link.end + 1);
    const sizes = { memoryBytes: CARD_BYTES, maxQp: 64, maxMr: 64, icrcOffload: false, seed };
    const card = await Card.create(sizes);
    const engine = new VirtualEngine(clock, card, link);
    const faults = new Faults(engine);
    const device = new Context({ card, link, engine, notes: [], keepAlive: false, pkeys: [0xffff], faults });
    const pd: Pd = await device.allocPd();
    const [sendCq, recvCq] = [await device.createCq(), await device.createCq()];
    const qp = await pd.createQp({ sendCq, recvCq, maxSendWr: SLOTS, maxRecvWr: SLOTS });
    const region = (bytes: number) => pd.regMr(bytes, { access: ALL });
    const [own, target, inbox] = [
      await region(SLOTS * SLOT_BYTES),
      await region(SLOTS * SLOT_BYTES),
      await region(SLOTS * SLOT_BYTES),
    ];
    return new Host(device, qp, sendCq, recvCq, own, target, inbox, await region(8));
  }

  /** Connects to the other end. Both must call it. */
  async connect(peer: Host, { pathMtu, windowLimit }: ConnectionOptions): Promise<void> {
    this.qp.windowLimit = windowLimit;
    await this.qp.connect(peer.qp.endpoint(), { access: ALL, pathMtu, rdAtomic: SLOTS });
    this.#postAll();
  }

  /** Takes the queue pair back to RESET: what is in progress is forgotten. */
  async reset(): Promise<void> {
    await this.qp.modify({ state: 'RESET' });
    this.poll(() => {});
    this.messages.clear();
    this.#arrived = 0;
    this.#receives.clear();
  }

  /** Whether every message finds a receive; without, messages are refused with RNR NAKs. */
  get postsReceives(): boolean {
    return this.#postsReceives;
  }
  set postsReceives(isOn: boolean) {
    this.#postsReceives = isOn;
    this.#postAll();
  }

  /** Takes the completions that have come. @param onSent called with each one of the send queue */
  poll(onSent: (wc: Wc) => void): void {
    for (const wc of completions(this.recvCq)) {
      this.#receives.delete(wc.wrId);
      if (!wc.ok) continue;
      const start = wc.wrId * SLOT_BYTES;
      const data = Uint8Array.from(this.inbox.buffer.subarray(start, start + wc.byteLen));
      this.lastMessage = { data, immData: wc.hasImm ? wc.immData : undefined };
      this.messages.set(this.#arrived++, this.lastMessage);
    }
    this.#postAll();
    for (const wc of completions(this.sendCq)) onSent(wc);
  }

  #postAll(): void {
    if (!this.#postsReceives || !['RTR', 'RTS'].includes(this.qp.state)) return;
    for (let slot = 0; slot < SLOTS; slot++) {
      if (this.#receives.has(slot)) continue;
      this.qp.postRecv({ wrId: slot, sgList: this.inbox.sge(slot * SLOT_BYTES, SLOT_BYTES) });
      this.#receives.add(slot);
    }
  }
}

function completions(cq: Cq): Wc[] {
  const into = cq.createWcs(2 * SLOTS);
  return into.slice(0, cq.poll(into));
}
