/**
 * Moving a link's frames in another thread than the one that opened the link. One thread transfers the link, the other
 * adopts it. Only plain data passes between them: the card's memory is shared, and the addon finds its sockets by
 * number.
 */
import { VerbsError } from '../errors.js';
import { native } from '../native.js';
import { Capture, type CapturePlan, writeTo } from './capture.js';
import { FaultMover, type FaultPlan } from './fault/mover.js';
import type { FrameMover } from './frames.js';
import type { Link } from './link.js';
import { XdpMover, type XdpPlan } from './xdp/mover.js';

/**
 * Parameters for another thread that moves a link's frames. Plain data. `fd` is readable when there may be frames to
 * receive.
 */
export type LinkTransfer = SocketTransfer | XdpTransfer | FaultTransfer | CaptureTransfer;

/** The packet and udp links. */
export interface SocketTransfer {
  readonly kind: 'socket';
  /** The addon's number of the socket (`NativeFrameSocket.transfer`). */
  readonly id: number;
  readonly fd: number;
  /** As `FrameMover.pushesFrames`. */
  readonly pushesFrames: boolean;
  /** An i32, set to 1 when the kernel has refused a GSO burst. */
  readonly gsoRefused: SharedArrayBuffer;
}

/** The xdp link. */
export interface XdpTransfer {
  readonly kind: 'xdp';
  readonly fd: number;
  readonly plan: XdpPlan;
}

/** The fault link and the link inside it. */
export interface FaultTransfer {
  readonly kind: 'fault';
  readonly inner: LinkTransfer;
  readonly fd: number;
  readonly plan: FaultPlan;
}

/** The pcap link and the link inside it. */
export interface CaptureTransfer {
  readonly kind: 'pcap';
  readonly inner: LinkTransfer;
  readonly fd: number;
  readonly plan: CapturePlan;
}

/** Transfers a link, which must be attached. @throws VerbsError EOPNOTSUPP if the link works in its own thread only */
export function transferLink(link: Link): LinkTransfer {
  if (link.transfer) return link.transfer();
  throw new VerbsError(
    'EOPNOTSUPP',
    `the ${link.kind} link works only in the thread that opened it: use mode 'inline'`,
  );
}

/**
 * Makes a mover from a transfer. Called in the thread that moves the frames from now on.
 * @param memory the card's memory
 * @param notify makes the first thread call `Link.onTransferNotice`; called after a change that the link must know
 */
export function adoptLink(transfer: LinkTransfer, memory: Uint8Array, notify: () => void): FrameMover {
  switch (transfer.kind) {
    case 'socket':
      return adoptSocket(transfer, notify);
    case 'xdp':
      return new XdpMover(memory, transfer.plan);
    case 'fault': {
      const { plan } = transfer;
      return new FaultMover(plan.options, plan.counts, adoptLink(transfer.inner, memory, notify)).attach(memory, plan);
    }
    case 'pcap':
      return new Capture(memory, transfer.plan, writeTo(transfer.plan.fd), adoptLink(transfer.inner, memory, notify));
  }
}

function adoptSocket({ id, pushesFrames, gsoRefused }: SocketTransfer, notify: () => void): FrameMover {
  const socket = new (native().AdoptedSocket)(id);
  return {
    pushesFrames,
    send() {
      const count = socket.send();
      if (count >= 0) return count;
      Atomics.store(new Int32Array(gsoRefused), 0, 1);
      notify();
      return ~count;
    },
    receive: () => socket.receive(),
    nextDeadline: () => 0,
  };
}
