/** The common part of the packet and udp links, whose frames the addon moves. */
import { outOfRange } from '../errors.js';
import type { NativeFrameSocket } from '../native.js';
import type { SharedSockets } from './broker/sharedsockets.js';
import type { Frames } from './frames.js';
import { HostLink } from './hostlink.js';
import { icrcNotes } from './icrcoffload.js';
import type { HostInterface } from './interfaces.js';
import type { LinkCounters, LinkFeatures } from './link.js';
import { frameLayout } from './ring.js';
import type { LinkTransfer } from './transfer.js';

/** Limits of a GSO burst (UDP_SEGMENT): one IP datagram of at most 64 KiB, less the longest headers. */
const GSO_LIMITS = { packets: 64, bytes: 65535 - 14 - 4 - 40 - 8 } as const;
/** Headers with a tag, and the longest payload of IPv6. Same value as kCoalescedBytes in native/core/frames.h. */
export const COALESCED_BYTES = 65600;
/**
 * Bytes of a socket's receive buffer and of its send buffer: thousands of frames, so that a busy event loop loses none.
 */
export const DEFAULT_BUFFER_BYTES = 8 * 2 ** 20;

/** A link on sockets of the addon. */
export abstract class SocketLink extends HostLink {
  readonly #socket: NativeFrameSocket;
  #usesGso = true;
  #notes: readonly string[] = [];
  /** An i32. The adopting thread sets it to 1 when the kernel has refused a GSO burst there. */
  readonly #gsoRefused = new SharedArrayBuffer(4);

  /** See HostLink. */
  protected constructor(
    iface: HostInterface,
    socket: NativeFrameSocket,
    fds: number[],
    only: boolean,
    shared?: SharedSockets,
  ) {
    super(iface, socket, fds, only, shared);
    this.#socket = socket;
  }

  attach(frames: Frames): void {
    if (frames.slotBytes < this.minSlotBytes)
      throw outOfRange(
        `slots have ${frames.slotBytes} bytes, the ${this.kind} link needs ${this.minSlotBytes} or more`,
      );
    this.#socket.attach(frames.memory, frameLayout(frames));
    this.#notes = icrcNotes(frames);
  }

  get pushesFrames(): boolean {
    return false;
  }

  get notes(): readonly string[] {
    return this.#notes;
  }

  transfer(): LinkTransfer {
    const { pushesFrames } = this;
    return { kind: 'socket', id: this.#socket.transfer(), fd: this.fd, pushesFrames, gsoRefused: this.#gsoRefused };
  }

  onTransferNotice(): void {
    if (this.#usesGso && new Int32Array(this.#gsoRefused)[0] !== 0) this.#stopGso();
  }

  send(_now: number): number {
    const count = this.#socket.send();
    if (count >= 0) return count;
    this.#stopGso();
    return ~count;
  }

  receive(_now: number): number {
    return this.#socket.receive();
  }

  counters(): LinkCounters {
    return this.#socket.counters();
  }

  /** GSO bursts, until the kernel has refused one, and super-packets. */
  protected get gsoFeatures(): Pick<LinkFeatures, 'gso' | 'coalescedBytes'> {
    return { ...(this.#usesGso && { gso: GSO_LIMITS }), coalescedBytes: COALESCED_BYTES };
  }

  /** Bytes that a receive slot must have at least, so that headers and a tag from the link fit. */
  protected get minSlotBytes(): number {
    return 128;
  }

  #stopGso(): void {
    this.#usesGso = false;
    this.featuresChanged();
  }
}
