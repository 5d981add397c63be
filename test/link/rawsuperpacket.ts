/** Sends super-packets with arbitrary headers by a packet socket of the test, for which perl is enough. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { endianness } from 'node:os';

/** Constants of linux/if_packet.h, linux/if_ether.h and linux/virtio_net.h. */
const AF_PACKET = 17;
const SOCK_RAW = 3;
const SOL_PACKET = 263;
const PACKET_VNET_HDR = 15;
const NEEDS_CHECKSUM = 1;
const UDP_SEGMENTS = 5;
const UDP_CHECKSUM_AT = 6;
const IS_LITTLE = endianness() === 'LE';

/** Bytes of the metadata in front of a frame (struct virtio_net_hdr). */
export const VNET_BYTES = 10;

/**
 * Reads the address, then messages, in hexadecimal digits, from standard input. An empty line is answered with the
 * number of messages that the kernel has taken since the last one.
 */
const PROGRAM = `
  $| = 1;
  chomp(my $digits = <STDIN>);
  my $address = pack 'H*', $digits;
  socket(my $socket, ${AF_PACKET}, ${SOCK_RAW}, 0) or die "socket: $!";
  setsockopt($socket, ${SOL_PACKET}, ${PACKET_VNET_HDR}, pack('i', 1)) or die "setsockopt: $!";
  my $sent = 0;
  while (<STDIN>) {
    chomp;
    if ($_ eq '') { print "$sent\\n"; $sent = 0; next }
    $sent++ if defined send($socket, pack('H*', $_), 0, $address);
  }`;

/** Metadata of segmentation offload: what a frame in front of which it stands is said to be. */
export interface Offload {
  readonly flags?: number;
  readonly type?: number;
  readonly headerBytes: number;
  readonly segmentBytes: number;
  readonly checksumStart?: number;
}

/** Returns a frame with metadata in front: after `headerBytes` of headers, payloads of `segmentBytes` each. */
export function withOffload(frame: Uint8Array, offload: Offload): Buffer {
  const { flags = NEEDS_CHECKSUM, type = UDP_SEGMENTS, headerBytes, segmentBytes } = offload;
  const header = new DataView(new ArrayBuffer(VNET_BYTES));
  header.setUint8(0, flags);
  header.setUint8(1, type);
  [headerBytes, segmentBytes, offload.checksumStart ?? headerBytes - 8, UDP_CHECKSUM_AT].forEach((value, i) => {
    header.setUint16(2 + 2 * i, value, IS_LITTLE);
  });
  return Buffer.concat([Buffer.from(header.buffer), frame]);
}

function addressOf(ifindex: number, ethertype: number): string {
  const address = new DataView(new ArrayBuffer(20));
  address.setUint16(0, AF_PACKET, IS_LITTLE);
  address.setUint16(2, ethertype);
  address.setInt32(4, ifindex, IS_LITTLE);
  return Buffer.from(address.buffer).toString('hex');
}

/** Sends a frame as a super-packet: after `headerBytes` of headers, payloads of `segmentBytes` each. */
export function sendSuperPacket(ifindex: number, frame: Uint8Array, headerBytes: number, segmentBytes: number): void {
  const message = withOffload(frame, { headerBytes, segmentBytes }).toString('hex');
  const type = (frame[12] as number) * 256 + (frame[13] as number);
  const sent = execFileSync('perl', ['-e', PROGRAM], { input: `${addressOf(ifindex, type)}\n${message}\n\n` });
  if (Number(sent) !== 1) throw new Error('the kernel refuses the super-packet');
}

/** A packet socket in a process of its own, for many messages. */
export class RawSender {
  readonly #child: ChildProcess;

  constructor(ifindex: number, ethertype: number) {
    this.#child = spawn('perl', ['-e', PROGRAM], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdin?.write(`${addressOf(ifindex, ethertype)}\n`);
  }

  /** Sends frames with metadata, as `withOffload` makes them. @returns the number that the kernel has taken */
  async send(messages: readonly Uint8Array[]): Promise<number> {
    const lines = messages.map((message) => `${Buffer.from(message).toString('hex')}\n`);
    this.#child.stdin?.write(`${lines.join('')}\n`);
    const [answer] = await once(this.#child.stdout as NodeJS.ReadableStream, 'data');
    return Number(answer);
  }

  async close(): Promise<void> {
    this.#child.stdin?.end();
    await once(this.#child, 'exit');
  }
}
