// GSO bursts: packets of one queue pair that follow each other on the transmit ring and that the link can send as one
// super-packet (Frames.tx in src/link/link.ts). All have the headers of the first packet except for the length, which
// is the same for all but the last, and IPv4 identifications that count from 0.

import { GSI_QPN, TxOption } from '../codes';
import { Ring } from '../host/ring';
import { GSO_BURST } from '../memorymap';

/** Frames that a queue pair may send in its turn, or more if a burst may be longer. */
const MIN_TURN_FRAMES: u32 = 16;

/** Behind it: the bits of a queue pair number that say which program of a host has it. */
const PROGRAM_SHIFT: u32 = 16;

@unmanaged
@final
export class GsoBurst {
  /** Largest burst of the link: packets (0 = no GSO) and bytes of UDP payload. */
  maxPackets: u32;
  maxBytes: u32;
  /** The path of its packets; 0 = the next packet starts another burst. */
  private path: usize;
  /** UDP payload of each packet in bytes. */
  private packetBytes: u32;
  private packets: u32;
  /** Descriptor options of the last added packet for its ICRC span (wire/icrc). */
  spanOptions: u32;
  private bytes: u32;
  /** Bytes of the frames put on the ring since takeSentBytes. */
  private sentBytes: u64;
  /** Destination queue pair of the last datagram. */
  private destQpn: u32;

  /** The burst that is being built. */
  static current(): GsoBurst {
    return changetype<GsoBurst>(GSO_BURST);
  }

  /** Number of frames that a queue pair may send in its turn. */
  get turnFrames(): u32 {
    return max(MIN_TURN_FRAMES, this.maxPackets);
  }

  /** Whether no other packet of the same length fits. */
  get isFull(): bool {
    return this.maxPackets != 0 && !this.hasRoom(this.packetBytes);
  }

  private hasRoom(length: u32): bool {
    return this.packets < this.maxPackets && this.bytes + length <= this.maxBytes;
  }

  /**
   * Adds a packet with this path and UDP payload in bytes, or starts another burst with it. Returns its index in the
   * burst.
   */
  add(path: usize, length: u32): u32 {
    if (path == this.path && length <= this.packetBytes && this.hasRoom(length)) {
      // a shorter packet must be the last
      if (length != this.packetBytes) this.path = 0;
      this.bytes += length;
      return this.packets++;
    }
    this.path = path;
    this.packetBytes = this.bytes = length;
    this.packets = 1;
    return 0;
  }

  /**
   * The next packet is a datagram to this queue pair. Programs of one host may share its address. Its kernel gives a
   * super-packet as a whole to one of them, so datagrams for different programs are in different bursts: bits 16 to 23
   * of the number say whose they are, and messages to queue pair 1 may be anyone's.
   */
  towards(destQpn: u32): void {
    let isForAny = destQpn == GSI_QPN || this.destQpn == GSI_QPN;
    if (isForAny || (destQpn ^ this.destQpn) >> PROGRAM_SHIFT != 0) this.path = 0;
    this.destQpn = destQpn;
  }

  /** Puts the last added packet on the ring. */
  put(ring: Ring, n: u32, bytes: u32): void {
    let options = this.packets > 1 ? <u32>TxOption.CONTINUES_BURST : 0;
    ring.describe(n, bytes, options | this.spanOptions);
    this.sentBytes += bytes;
  }

  /** Returns the bytes of the frames put on the ring since the last call. */
  takeSentBytes(): u64 {
    let sent = this.sentBytes;
    this.sentBytes = 0;
    return sent;
  }

  /** Ends the burst: the next packet starts another one. */
  end(): void {
    this.path = 0;
    this.packetBytes = this.packets = this.bytes = 0;
  }
}
