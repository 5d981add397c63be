/** The card's wire formats alone: assembly/testing.ts on its own memory, with frames. */
import { testingModule } from '../kit/testing.js';

interface Exports {
  init(): void;
  parse(frame: number, bytes: number, options: number): number;
  isIcrcRight(): number;
  isIcrcOfRxe(): number;
  reemit(frame: number, to: number, vlanTci: number, hopLimit: number): number;
  crc(register: number, ptr: number, bytes: number): number;
  packetCount(length: number, mtu: number): number;
  psnAdd(psn: number, count: number): number;
  psnDiff(a: number, b: number): number;
  rnrDelay(code: number): bigint;
  NO_DROP: WebAssembly.Global;
  readonly [counter: `Counter.${string}`]: WebAssembly.Global;
}

const FRAME_AT = 1 << 17;
const OUT_AT = 1 << 18;
const UNTAGGED = 0xffffffff;

export class Wire {
  private constructor(
    readonly exports: Exports,
    readonly bytes: Uint8Array,
    private readonly names: ReadonlyMap<number, string>,
  ) {}

  static async create(): Promise<Wire> {
    const memory = new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true });
    const abort = () => {
      throw new Error('the card aborted');
    };
    const { exports } = await WebAssembly.instantiate(testingModule, { env: { memory, abort } });
    const names = new Map<number, string>();
    for (const [name, value] of Object.entries(exports))
      if (name.startsWith('Counter.')) names.set((value as WebAssembly.Global).value, name.slice('Counter.'.length));
    const wire = new Wire(exports as unknown as Exports, new Uint8Array(memory.buffer), names);
    wire.exports.init();
    return wire;
  }

  /**
   * Puts a frame into the card's memory, `shift` bytes off alignment, and parses it. @returns 'ok', or why it is
   * dropped
   */
  parse(frame: Uint8Array, options = 0, shift = 0): string {
    this.bytes.set(frame, FRAME_AT + shift);
    const verdict = this.exports.parse(FRAME_AT + shift, frame.length, options);
    return verdict === this.exports.NO_DROP.value ? 'ok' : (this.names.get(verdict) ?? `counter ${verdict}`);
  }

  /** Of the frame parsed last. */
  get isIcrcRight(): boolean {
    return this.exports.isIcrcRight() !== 0;
  }

  /** The frame parsed last, written again by the card's setters. */
  reemit(hopLimit: number, vlanTci = UNTAGGED): Uint8Array {
    this.bytes.fill(0xa5, OUT_AT, OUT_AT + 9000);
    const length = this.exports.reemit(FRAME_AT, OUT_AT, vlanTci, hopLimit);
    return this.bytes.slice(OUT_AT, OUT_AT + length);
  }
}
