/**
 * The card: one instance of the WebAssembly module on one shared memory. Nothing here knows a protocol; it gives the
 * module's exports their types and the memory its views.
 */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { instantiate } from '../../build/card.js';
import type { Frames, LinkFeatures, Ring } from '../link/link.js';
import { type Lock, locked } from './locked.js';

export type CardExports = Awaited<ReturnType<typeof instantiate>>;

/** Sizes of a card, fixed when it is opened. */
export interface CardOptions {
  /** Bytes of the card's memory: rings, queue pairs and all registered memory. Up to 4 GiB. */
  readonly memoryBytes: number;
  /** Bytes of a transmit slot and of a receive slot, and how many there are: powers of two. */
  readonly txSlotBytes: number;
  readonly txSlots: number;
  readonly rxSlotBytes: number;
  readonly rxSlots: number;
  readonly maxQp: number;
  readonly maxMr: number;
  /** The link does its part of the ICRC of large packets (LinkFeatures.icrcOffload). */
  readonly icrcOffload: boolean;
  /** 32 bytes from which all keys, queue pair numbers and PSNs are drawn. */
  readonly seed: Uint8Array;
}

export const CARD_DEFAULTS = {
  memoryBytes: 256 * 2 ** 20,
  txSlotBytes: 4608,
  txSlots: 128,
  rxSlotBytes: 4608,
  rxSlots: 1024,
  maxQp: 16384,
  maxMr: 16384,
  icrcOffload: false,
} as const;

const PAGE = 65536;
/** Receive slots where each holds a super-packet. */
const COALESCED_SLOTS = 128;
/** They take no more than this part of the memory. */
const COALESCED_PART = 1 / 3;
let compiled: WebAssembly.Module | undefined;

/** Receive slots for a link: fewer and larger ones when it delivers super-packets and the memory has room for them. */
export function receiveSlots(features: LinkFeatures, memoryBytes: number): Partial<CardOptions> {
  const { coalescedBytes } = features;
  if (coalescedBytes === undefined) return {};
  const rxSlotBytes = Math.max(CARD_DEFAULTS.rxSlotBytes, Math.ceil(coalescedBytes / 4096) * 4096);
  return COALESCED_SLOTS * rxSlotBytes <= memoryBytes * COALESCED_PART ? { rxSlotBytes, rxSlots: COALESCED_SLOTS } : {};
}

/** Compiles the card once per process. */
export function cardModule(): WebAssembly.Module {
  compiled ??= compile(readFileSync(new URL('../../build/card.wasm', import.meta.url)));
  return compiled;
}

/**
 * All of it by the optimizing compiler, at once. V8 would begin with slow code and make it fast in the background, which
 * never has its turn while cards look for work on every processor: a third of the throughput for the first seconds.
 */
function compile(bytes: BufferSource): WebAssembly.Module {
  setFlagsFromString('--no-liftoff');
  setFlagsFromString('--no-wasm-lazy-compilation');
  try {
    return new WebAssembly.Module(bytes);
  } finally {
    setFlagsFromString('--liftoff');
    setFlagsFromString('--wasm-lazy-compilation');
  }
}

export class Card {
  readonly bytes: Uint8Array;
  readonly u32: Uint32Array;
  readonly f64: Float64Array;

  private constructor(
    readonly memory: WebAssembly.Memory,
    readonly exports: CardExports,
    readonly options: CardOptions,
    readonly lock?: Lock,
  ) {
    this.bytes = new Uint8Array(memory.buffer);
    this.u32 = new Uint32Array(memory.buffer);
    this.f64 = new Float64Array(memory.buffer);
  }

  /**
   * @param lock of a card whose turns another thread takes: held in every call that must not meet with a turn
   * @throws RangeError when the sizes do not fit each other or the memory
   */
  static async create(options: Partial<CardOptions> & Pick<CardOptions, 'seed'>, lock?: Lock): Promise<Card> {
    const all: CardOptions = { ...CARD_DEFAULTS, ...options };
    if (all.seed.length !== 32) throw new RangeError(`seed has ${all.seed.length} bytes, must have 32`);
    const pages = Math.ceil(all.memoryBytes / PAGE);
    if (pages < 16 || pages > 65536)
      throw new RangeError(`memoryBytes ${all.memoryBytes} is not between 1 MiB and 4 GiB`);
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    const exports = await instantiate(cardModule(), { env: { memory } });
    const card = new Card(memory, lock ? locked(exports, lock) : exports, { ...all, memoryBytes: pages * PAGE }, lock);
    card.bytes.set(all.seed, exports.scratch());
    const { txSlotBytes, txSlots, rxSlotBytes, rxSlots, maxQp, maxMr } = all;
    const refused = exports.open(pages * PAGE, txSlotBytes, txSlots, rxSlotBytes, rxSlots, maxQp, maxMr);
    if (refused !== 0)
      throw new RangeError(
        `a card of ${pages * PAGE} bytes with ${txSlots} slots of ${txSlotBytes} bytes and ${rxSlots} of ${rxSlotBytes}, ` +
          `${maxQp} queue pairs and ${maxMr} memory regions cannot be laid out (${exports.Errno[refused]})`,
      );
    return card;
  }

  /** The same card for another thread, which takes its turns: an instance of its own on the same memory. */
  static async join(module: WebAssembly.Module, memory: WebAssembly.Memory, options: CardOptions): Promise<Card> {
    return new Card(memory, await instantiate(module, { env: { memory } }), options);
  }

  /** Does something during which no turn is taken. */
  exclusively<T>(action: () => T): T {
    if (!this.lock) return action();
    this.lock.acquire();
    try {
      return action();
    } finally {
      this.lock.release();
    }
  }

  get frames(): Frames {
    return {
      memory: this.bytes,
      tx: this.ring(this.exports.txRing()),
      rx: this.ring(this.exports.rxRing()),
      slotBytes: this.options.rxSlotBytes,
      icrcOffload: this.options.icrcOffload,
      allocate: (bytes) => this.#lend(bytes),
    };
  }

  /** Memory for a link's own rings. @throws RangeError when the card has not so much left */
  #lend(bytes: number): number {
    const ptr = this.exports.memAlloc(bytes);
    if (ptr === 0) throw new RangeError(`the link needs ${bytes} bytes, the card has ${this.exports.memAvailable()}`);
    return ptr;
  }

  private ring(at: number): Ring {
    const { RingOffset } = this.exports;
    return {
      producer: at + RingOffset.PRODUCER,
      consumer: at + RingOffset.CONSUMER,
      descriptors: at + RingOffset.DESCRIPTORS,
      mask: this.u32[(at + RingOffset.MASK) >>> 2] as number,
    };
  }
}
