/** Frames and super-packets for a bare card: the deepest and fastest target, which knows what the card expects. */
import { cardInCPrivilege, useCards } from '../kit/cardinc.js';
import type { Random } from '../kit/random.js';
import { regionsOutside } from '../kit/rig.js';
import { type FuzzTarget, readCorpus, type Session } from './fuzzer.js';
import { aim, crafted, mutate, superPacket } from './mutations.js';
import { Target } from './target.js';

/** An input is the options of the receive descriptor (32 bits, big-endian), then the frame. */
const OPTIONS_BYTES = 4;
export const KINDS = readCorpus(new URL('corpus/kinds.hex', import.meta.url));

class CardSession implements Session {
  constructor(readonly target: Target) {}

  next(random: Random): Uint8Array {
    const { target } = this;
    const dice = random.below(10);
    if (dice === 0) {
      const { bytes, options } = superPacket(target, random);
      return withOptions(options, bytes);
    }
    const kind = random.pick(KINDS);
    const bytes = dice < 4 ? crafted(target, random) : dice < 6 ? kind : aim(target, random, kind);
    return withOptions(random.chance(0.1) ? 0x10000 : 0, dice % 2 === 0 ? mutate(random, bytes) : bytes);
  }

  feed(inputs: readonly Uint8Array[]): void {
    for (const input of inputs) {
      this.target.options = new DataView(input.buffer, input.byteOffset).getUint32(0);
      this.target.feed(input.subarray(OPTIONS_BYTES));
    }
    this.target.tend();
    this.target.checkGuards();
  }

  check(): void {
    this.target.options = 0;
    this.target.checkAlive();
    this.target.checkGuards();
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

function withOptions(options: number, frame: Uint8Array): Uint8Array {
  const input = new Uint8Array(OPTIONS_BYTES + frame.length);
  new DataView(input.buffer).setUint32(0, options);
  input.set(frame, OPTIONS_BYTES);
  return input;
}

export const cardTarget: FuzzTarget = {
  name: 'card',
  about: 'frames and super-packets for a bare card with live queue pairs of every type, and memory in it or outside',
  batch: 16,
  batches: 500,
  open: (seed) => openSession(seed),
};

/** Opens a session. Every second seed has all registered memory outside of the card. */
async function openSession(seed: number, memoryBytes?: number): Promise<CardSession> {
  regionsOutside.enabled = (seed & 1) !== 0;
  try {
    return new CardSession(await Target.create(memoryBytes));
  } finally {
    regionsOutside.enabled = false;
  }
}

/** Bytes of a memory that is compared after each call. */
const COMPARED_BYTES = 4 << 20;

export const cardsTarget: FuzzTarget = {
  name: 'cards',
  about: 'the same for the card in V8 and the card as C at once: equal results, equal memory after each call',
  batch: 16,
  batches: 40,
  share: 0.05,
  unavailable() {
    const { ok, reason } = cardInCPrivilege();
    return ok ? undefined : reason;
  },
  async open(seed) {
    const end = useCards('both');
    try {
      return await openSession(seed, COMPARED_BYTES);
    } finally {
      end();
    }
  },
};
