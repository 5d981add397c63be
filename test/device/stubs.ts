/** A stub card and a stub link that a test controls, to test the engine alone. */
import type { Card } from '../../src/device/card.js';
import { EventOffset } from '../../src/device/codes.js';
import type { Frames } from '../../src/link/frames.js';
import type { Link, LinkInterface } from '../../src/link/link.js';

const TX_PRODUCER = 0;
const TX_CONSUMER = 64;
const EVENT = 256;

/** The part of a card that the engine uses. The next `work` turns transmit a frame each. */
export class StubCard {
  work = 0;
  deadline = 0;
  turns = 0;
  events: [type: number, handle: number][] = [];
  readonly u32 = new Uint32Array(256);
  readonly frames = {
    memory: new Uint8Array(this.u32.buffer),
    tx: { producer: TX_PRODUCER, consumer: TX_CONSUMER, descriptors: 128, mask: 0 },
    rx: { producer: 192, consumer: 200, descriptors: 512, mask: 0 },
    slotBytes: 64,
  };
  readonly options = { icrcOffload: false };
  readonly log: string[] = [];
  readonly exports = {
    setLink: (flags: number, port: number) => this.log.push(`setLink ${flags} ${port}`),
    rx: () => 0,
    expire: () => this.log.push('expire'),
    tx: () => {
      this.turns++;
      if (this.work === 0) return 0;
      this.work--;
      this.#add(TX_PRODUCER);
      return 1;
    },
    nextDeadline: () => this.deadline,
    eventPeek: () => {
      const next = this.events[0];
      if (next === undefined) return 0;
      this.u32[(EVENT + EventOffset.TYPE) / 4] = next[0];
      this.u32[(EVENT + EventOffset.HANDLE) / 4] = next[1];
      return EVENT;
    },
    eventPop: () => this.events.shift(),
  };

  /** Takes all frames from the transmit ring. */
  drain(): number {
    const count = (this.u32[TX_PRODUCER / 4] as number) - (this.u32[TX_CONSUMER / 4] as number);
    this.u32[TX_CONSUMER / 4] = this.u32[TX_PRODUCER / 4] as number;
    return count;
  }

  get card(): Card {
    return this as unknown as Card;
  }

  #add(offset: number): void {
    this.u32[offset / 4] = (this.u32[offset / 4] as number) + 1;
  }
}

export class StubLink implements Link {
  readonly kind = 'stub';
  readonly features = { maxFrame: 4201, ipHeaderVisible: true, sourcePort: 0, ipIdentification: 'as written' } as const;
  readonly interface: LinkInterface = {
    name: 'stub0',
    index: 1,
    mtu: 1500,
    mac: Uint8Array.of(2, 0, 0, 0, 0, 1),
    addresses: ['10.0.0.1', 'fd00::1', 'fe80::1'],
    up: true,
  };
  takes = true;
  sent = 0;
  closed = false;
  deadline = 0;
  waits: { deadline: number; keepAlive: boolean; wake: () => void }[] = [];
  drain: () => number = () => 0;

  attach(_frames: Frames): void {}
  send(): number {
    const count = this.takes ? this.drain() : 0;
    this.sent += count;
    return count;
  }
  receive(): number {
    return 0;
  }
  nextDeadline(): number {
    return this.deadline;
  }
  wait(deadline: number, keepAlive: boolean, wake: () => void): void {
    this.waits.push({ deadline, keepAlive, wake });
  }
  cancelWait(): void {}
  counters(): Record<string, number> {
    return { frames: this.sent };
  }
  async resolve(): Promise<{ destMac: Uint8Array }> {
    return { destMac: Uint8Array.of(2, 0, 0, 0, 0, 2) };
  }
  close(): void {
    this.closed = true;
  }
}
