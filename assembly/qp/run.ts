// Runs: packets of one queue pair that follow each other on the transmit ring and that the link can send in one go, as one
// super-packet (Frames.tx in src/link/link.ts). They have the headers of the first but for their length, which is the same
// for all but the last, and IPv4 identifications that count from 0.
import { Ring } from '../host/ring';
import { RUN, TX_ICRC_SHIFT, TxOption } from '../limits';

/** Frames that a queue pair may send in its turn, or more where a run may be longer. */
const BURST: u32 = 16;

@unmanaged
@final
export class Run {
  /** What the link sends in one go: packets, 0 = it knows no runs, and bytes of UDP payload. */
  mostPackets: u32;
  mostBytes: u32;
  /** The path of its packets; 0 = the next packet begins another run. */
  private path: usize;
  /** Bytes of UDP payload of each of its packets. */
  private length: u32;
  private packets: u32;
  /** Bytes of the packet that was added last whose part of the ICRC is left to the link. */
  share: u32;
  private bytes: u32;
  /** Bytes of the frames that have been put on the ring since takeSent. */
  private sent: u64;

  /** The one that is being made. */
  static current(): Run {
    return changetype<Run>(RUN);
  }

  /** Frames that a queue pair may send in its turn. */
  get burst(): u32 {
    return max(BURST, this.mostPackets);
  }

  /** Whether it can take no other packet as long as those that it has. */
  get isFull(): bool {
    return this.mostPackets != 0 && !this.hasRoom(this.length);
  }

  private hasRoom(length: u32): bool {
    return this.packets < this.mostPackets && this.bytes + length <= this.mostBytes;
  }

  /** Takes a packet of so many bytes of UDP payload that goes this way, or begins another run with it. Answers its place. */
  add(path: usize, length: u32): u32 {
    if (path == this.path && length <= this.length && this.hasRoom(length)) {
      // a shorter one can only be the last
      if (length != this.length) this.path = 0;
      this.bytes += length;
      return this.packets++;
    }
    this.path = path;
    this.length = this.bytes = length;
    this.packets = 1;
    return 0;
  }

  /** Puts the packet that was added last on the ring. */
  put(ring: Ring, n: u32, bytes: u32): void {
    let options = this.packets > 1 ? <u32>TxOption.CONTINUES_RUN : 0;
    ring.describe(n, bytes, options | (this.share << TX_ICRC_SHIFT));
    this.sent += bytes;
  }

  /** Bytes of the frames that have been put on the ring since the last call. */
  takeSent(): u64 {
    let sent = this.sent;
    this.sent = 0;
    return sent;
  }

  /** The next packet begins another one. */
  end(): void {
    this.path = 0;
    this.length = this.packets = this.bytes = 0;
  }
}
