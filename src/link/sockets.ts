/** What the links on the addon's sockets have in common: the addon moves the frames. */
import { type NativeFrameSocket, native } from '../native.js';
import { HostLink } from './hostlink.js';
import type { HostInterface } from './interfaces.js';
import type { Frames, LinkCounters, LinkFeatures } from './link.js';
import type { Loan } from './loan.js';
import { frameLayout } from './ring.js';

/** The port of RoCEv2 (IANA). */
export const ROCE_PORT = 4791;
/** Packets and bytes of UDP payload that the kernel takes in one go: in one datagram of IP, below 64 KiB as a frame. */
const RUNS = { packets: 64, bytes: 65535 - 14 - 4 - 40 - 8 } as const;
/** Headers with a tag, and the longest payload of IPv6; kCoalescedBytes of native/frames.h. */
const COALESCED_BYTES = 65600;
/** Receive and send buffer of a socket: thousands of frames, so that a busy event loop loses none. */
export const DEFAULT_BUFFER_BYTES = 8 * 2 ** 20;

export abstract class SocketLink extends HostLink {
  readonly #socket: NativeFrameSocket;
  #takesRuns = true;
  #sharesIcrc = false;
  /** Not 0: in the thread that moves the frames the kernel has refused a run. */
  readonly #news = new SharedArrayBuffer(4);

  /** @param only it is for no other addresses than those that `end` has now */
  protected constructor(end: HostInterface, socket: NativeFrameSocket, fds: number[], only: boolean) {
    super(end, socket, fds, only);
    this.#socket = socket;
  }

  attach(frames: Frames): void {
    if (frames.slotBytes < this.smallestSlot)
      throw new RangeError(
        `slots of ${frames.slotBytes} bytes: the ${this.kind} link needs ${this.smallestSlot} or more`,
      );
    this.#socket.attach(frames.memory, frameLayout(frames));
    this.#sharesIcrc = frames.icrcOffload === true;
  }

  get notes(): readonly string[] {
    return this.#sharesIcrc ? [`most of the ICRC of large packets by the processor's ${native().crcMethods()[0]}`] : [];
  }

  lend(): Loan {
    return { kind: 'socket', id: this.#socket.lend(), fd: this.fd, news: this.#news };
  }

  onLoanNews(): void {
    if (this.#takesRuns && new Int32Array(this.#news)[0] !== 0) this.#refuseRuns();
  }

  send(_now: number): number {
    const taken = this.#socket.send();
    if (taken >= 0) return taken;
    this.#refuseRuns();
    return ~taken;
  }

  receive(_now: number): number {
    return this.#socket.receive();
  }

  counters(): LinkCounters {
    return this.#socket.counters();
  }

  /** The part of the ICRC that the addon can do on this processor. */
  protected readonly offload: Pick<LinkFeatures, 'icrcOffload'> =
    native().crcMethods().length > 0 ? { icrcOffload: true } : {};

  /** What many packets in one system call come to: runs until the kernel has refused one. */
  protected get together(): Pick<LinkFeatures, 'runs' | 'coalescedBytes'> {
    return { ...(this.#takesRuns && { runs: RUNS }), coalescedBytes: COALESCED_BYTES };
  }

  /** Bytes a slot must have, so that headers and a tag that the link puts in fit. */
  protected get smallestSlot(): number {
    return 128;
  }

  #refuseRuns(): void {
    this.#takesRuns = false;
    this.featuresChanged();
  }
}
