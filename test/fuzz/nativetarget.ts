/**
 * Frames with random metadata of segmentation offload, sent by a raw socket into a veth pair: the native packet link
 * receives them, then a bare card. The link's memory is an ArrayBuffer of the C heap that ends with the last slot, so
 * that the address sanitizer sees what is written behind it.
 */
import { type Frames, RX_SEGMENT_SHIFT } from '../../src/link/frames.js';
import { PacketLink } from '../../src/link/packet.js';
import { RingView } from '../../src/link/ring.js';
import { headerBytes } from '../kit/gsobursts.js';
import { all, netPrivilege, programPrivilege } from '../kit/needs.js';
import type { Random } from '../kit/random.js';
import { sh, vethPair } from '../link/netns.js';
import { RawSender, VNET_BYTES, withOffload } from '../link/rawsuperpacket.js';
import type { FuzzTarget, Session } from './fuzzer.js';
import { crafted, mutate, superPacket } from './mutations.js';
import { Target } from './target.js';

const NET = 188;
const BATCH = 32;
const SLOTS = 64;
/** Slots for frames, which the link fills through its splitter, and slots for super-packets. */
const [FRAME_SLOT, SUPER_SLOT] = [4608, 65600];
const RING_BYTES = 64 + SLOTS * 16;
const RX_OPTIONS = 0xffff_0000;
let veths = 0;

/** Rings and receive slots in memory of the C heap; the last slot ends with it. */
function heapFrames(slotBytes: number, icrcOffload: boolean): Frames {
  const slots = 2 * RING_BYTES;
  const memory = new Uint8Array(new ArrayBuffer(slots + SLOTS * slotBytes));
  const ring = (at: number) => ({ producer: at, consumer: at + 8, descriptors: at + 16, mask: SLOTS - 1 });
  const frames = { memory, tx: ring(0), rx: ring(RING_BYTES), slotBytes, icrcOffload };
  const rx = new RingView(memory, frames.rx);
  for (let i = 0; i < SLOTS; i++) rx.setAddr(i, slots + i * slotBytes);
  return frames;
}

class NativeSession implements Session {
  readonly #names = [`fzn${veths}`, `fzm${veths++}`] as const;
  readonly #link: PacketLink;
  readonly #frames: Frames;
  readonly #rx: RingView;
  readonly #sender: RawSender;
  readonly #mac: Uint8Array;

  constructor(
    readonly target: Target,
    seed: number,
  ) {
    vethPair(this.#names, NET, 4500);
    this.#link = PacketLink.open({ interface: this.#names[0] });
    this.#mac = Uint8Array.from(this.#link.interface.mac);
    const far = PacketLink.open({ interface: this.#names[1] });
    this.#sender = new RawSender(far.interface.index, 0x0800);
    far.close();
    this.#frames = heapFrames(seed & 1 ? FRAME_SLOT : SUPER_SLOT, (seed & 2) !== 0);
    this.#rx = new RingView(this.#frames.memory, this.#frames.rx);
    this.#link.attach(this.#frames);
  }

  next(random: Random): Uint8Array {
    const { target } = this;
    const { bytes, options } = superPacket(target, random);
    const frame = random.chance(0.2) ? crafted(target, random) : bytes;
    const damaged = random.chance(0.2) ? mutate(random, frame) : Uint8Array.from(frame);
    // the interface takes frames to its own address only
    if (damaged.length > 14 && random.chance(0.95)) damaged.set(this.#mac);
    const headers = frame.length > 18 && random.chance(0.9) ? headerBytes(frame) : random.below(200);
    const segmentBytes = random.chance(0.8) ? options >>> RX_SEGMENT_SHIFT : random.below(65536);
    return withOffload(damaged, {
      ...{ headerBytes: headers, segmentBytes: segmentBytes & 0xffff },
      ...(random.chance(0.3) && { flags: 0, type: 0 }),
      ...(random.chance(0.05) && { flags: random.below(8), type: random.below(8) }),
      ...(random.chance(0.05) && { checksumStart: random.below(100) }),
    });
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    const { target } = this;
    await this.#sender.send(inputs.filter(({ length }) => length > VNET_BYTES));
    while (this.#link.receive(0) > 0) {
      const rx = this.#rx;
      for (; rx.filled > 0; rx.consumer++) {
        const [addr, length, options] = [rx.addr(rx.consumer), rx.length(rx.consumer), rx.options(rx.consumer)];
        const { slotBytes } = this.#frames;
        if (length > slotBytes) throw new Error(`${length} bytes in a slot of ${slotBytes}`);
        if (slotBytes === FRAME_SLOT && options >>> RX_SEGMENT_SHIFT !== 0) throw new Error('a super-packet in a slot');
        target.options = (options & RX_OPTIONS) >>> 0;
        target.feed(this.#frames.memory.slice(addr, addr + length));
      }
    }
    target.tend();
    target.checkGuards();
  }

  check(): void {
    this.target.options = 0;
    this.target.checkAlive();
    this.target.checkGuards();
    const { rx_errors: errors } = this.#link.counters();
    if (errors !== 0) throw new Error(`the link has counted ${errors} errors`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#link.close();
    await this.#sender.close();
    sh(`ip link del ${this.#names[0]}`);
  }
}

export const nativeTarget: FuzzTarget = {
  name: 'native',
  about: 'super-packets with random metadata for the native receive path, and for a bare card behind it',
  batch: BATCH,
  batches: 100,
  unavailable: () => all(netPrivilege(), programPrivilege('perl'), programPrivilege('ip')).reason || undefined,
  async open(seed) {
    return new NativeSession(await Target.create(), seed);
  },
};
