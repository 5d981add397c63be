/**
 * The card: an instance of the WebAssembly module on a shared memory. This file gives the module's exports their types
 * and the memory its views. It knows no protocol.
 */

import { readFileSync } from 'node:fs';
import { instantiate } from '../../build/card.js';
import { outOfRange, VerbsError } from '../errors.js';
import type { Frames, Ring } from '../link/frames.js';
import type { LinkFeatures } from '../link/link.js';
import { packageFile } from '../packagefile.js';
import { type Lock, locked } from './locked.js';
import { openRegions, type Regions } from './regions.js';

/** The functions and constants that the module exports (assembly/index.ts). */
export type CardExports = Awaited<ReturnType<typeof instantiate>>;

/** Sizes of a card. They are fixed when the card is opened. */
export interface CardOptions {
  /** Bytes of the card's memory, which holds rings, queue pairs and all registered memory. 1 MiB to 4 GiB. */
  readonly memoryBytes: number;
  /** Bytes of a transmit slot. */
  readonly txSlotBytes: number;
  /** Number of transmit slots, a power of two. */
  readonly txSlots: number;
  /** Bytes of a receive slot. */
  readonly rxSlotBytes: number;
  /** Number of receive slots, a power of two. */
  readonly rxSlots: number;
  /** Maximum number of queue pairs. */
  readonly maxQp: number;
  /** Maximum number of memory regions. */
  readonly maxMr: number;
  /** Whether the link computes its share of the ICRC of large packets (`LinkFeatures.icrcOffload`). */
  readonly icrcOffload: boolean;
  /** 32 random bytes. The card derives all keys, queue pair numbers and PSNs from them. */
  readonly seed: Uint8Array;
}

/** Default sizes of a card. */
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
/** Number of receive slots if each can hold a super-packet. */
const COALESCED_RX_SLOTS = 128;
/** Maximum share of the memory for such slots. */
const MAX_COALESCED_SHARE = 1 / 3;
let compiled: WebAssembly.Module | undefined;

/** Returns the receive slots for a link: fewer and larger ones if it delivers super-packets and the memory has room. */
export function receiveSlots(features: LinkFeatures, memoryBytes: number): Partial<CardOptions> {
  const { coalescedBytes } = features;
  if (coalescedBytes === undefined) return {};
  const rxSlotBytes = Math.max(CARD_DEFAULTS.rxSlotBytes, Math.ceil(coalescedBytes / 4096) * 4096);
  return COALESCED_RX_SLOTS * rxSlotBytes <= memoryBytes * MAX_COALESCED_SHARE
    ? { rxSlotBytes, rxSlots: COALESCED_RX_SLOTS }
    : {};
}

/**
 * Returns the compiled module. It is compiled once in each thread. V8's defaults apply: flags that compile the whole
 * card at once save some of the first 100 ms and gain nothing later. They change the whole process, and end it in some
 * versions.
 * @internal Types with the namespace WebAssembly would need the DOM library.
 * @throws VerbsError EOPNOTSUPP if the file cannot be read
 */
export function cardModule(): WebAssembly.Module {
  compiled ??= new WebAssembly.Module(readModule());
  return compiled;
}

/**
 * Sets the module of this thread, for a program that has no files, such as a page.
 * @internal As `cardModule`.
 */
export function setCardModule(module: WebAssembly.Module): void {
  compiled = module;
}

function readModule(): BufferSource {
  const file = packageFile('build/card.wasm');
  try {
    return readFileSync(file);
  } catch (cause) {
    throw new VerbsError(
      'EOPNOTSUPP',
      `the card cannot be read from ${file} (${(cause as NodeJS.ErrnoException).code}); ` +
        'a bundler must leave the package wasm-roce out of its bundle (docs/bundlers.md)',
      { cause },
    );
  }
}

/** A card and its memory. */
export class Card {
  /** The memory as bytes. */
  readonly bytes: Uint8Array;
  /** The memory as 32-bit words. */
  readonly u32: Uint32Array;
  /** The memory as 64-bit floating-point numbers. */
  readonly f64: Float64Array;

  private constructor(
    /** @internal As `cardModule`. */
    readonly memory: WebAssembly.Memory,
    readonly exports: CardExports,
    /** Registered memory outside of the card's. */
    readonly regions: Regions,
    readonly options: CardOptions,
    readonly lock?: Lock,
  ) {
    this.bytes = new Uint8Array(memory.buffer);
    this.u32 = new Uint32Array(memory.buffer);
    this.f64 = new Float64Array(memory.buffer);
  }

  /**
   * Creates and opens a card.
   * @param lock for a card whose turns another thread takes: held in every call that must not run during a turn
   * @throws RangeError if a size is out of range, or the sizes do not fit into the memory
   */
  static async create(options: Partial<CardOptions> & Pick<CardOptions, 'seed'>, lock?: Lock): Promise<Card> {
    const all: CardOptions = { ...CARD_DEFAULTS, ...options };
    if (all.seed.length !== 32) throw outOfRange(`seed has ${all.seed.length} bytes, must have 32`);
    const pages = Math.ceil(all.memoryBytes / PAGE);
    if (pages < 16 || pages > 65536) throw outOfRange(`memoryBytes is ${all.memoryBytes}, must be 1 MiB to 4 GiB`);
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    const regions = openRegions(new Uint8Array(memory.buffer));
    const exports = await instantiate(cardModule(), { env: { memory, ...regions.imports } });
    const sizes = { ...all, memoryBytes: pages * PAGE };
    const card = new Card(memory, lock ? locked(exports, lock) : exports, regions, sizes, lock);
    card.bytes.set(all.seed, exports.scratch());
    const { txSlotBytes, txSlots, rxSlotBytes, rxSlots, maxQp, maxMr } = all;
    const refused = exports.open(pages * PAGE, txSlotBytes, txSlots, rxSlotBytes, rxSlots, maxQp, maxMr);
    if (refused !== 0)
      throw outOfRange(
        `${txSlots} transmit slots of ${txSlotBytes} bytes, ${rxSlots} receive slots of ${rxSlotBytes} bytes, ${maxQp} queue ` +
          `pairs and ${maxMr} memory regions do not fit into ${pages * PAGE} bytes (${exports.Errno[refused]})`,
      );
    return card;
  }

  /** @internal Makes another instance on the memory of an open card, for the thread that takes its turns. */
  static async join(module: WebAssembly.Module, memory: WebAssembly.Memory, options: CardOptions): Promise<Card> {
    const regions = openRegions(new Uint8Array(memory.buffer));
    const exports = await instantiate(module, { env: { memory, ...regions.imports } });
    return new Card(memory, exports, regions, options);
  }

  /** Runs an action while no turn is taken. Its calls of the card do not wait again. */
  exclusively<T>(action: () => T): T {
    // a failed card takes no turns, and one may not have ended
    if (!this.lock || this.lock.hasFailed) return action();
    this.lock.acquire();
    try {
      return action();
    } finally {
      this.lock.release();
    }
  }

  /** The memory and rings for a link. */
  get frames(): Frames {
    return {
      memory: this.bytes,
      tx: this.ring(this.exports.txRing()),
      rx: this.ring(this.exports.rxRing()),
      slotBytes: this.options.rxSlotBytes,
      icrcOffload: this.options.icrcOffload,
      allocate: (bytes) => this.#allocate(bytes),
    };
  }

  /** Allocates memory for a link. @throws RangeError if the card has not enough memory left */
  #allocate(bytes: number): number {
    const ptr = this.exports.ringAlloc(bytes);
    if (ptr === 0)
      throw outOfRange(`the link needs ${bytes} bytes, the card has ${this.exports.objectMemAvailable()} left`);
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
