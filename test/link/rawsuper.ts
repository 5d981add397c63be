/** Super-packets that the test writes itself, with whatever headers, into a packet socket of its own. */
import { endianness } from 'node:os';
import koffi from 'koffi';

/** Of linux/if_packet.h, linux/if_ether.h and linux/virtio_net.h. */
const AF_PACKET = 17;
const SOCK_RAW = 3;
const SOL_PACKET = 263;
const PACKET_VNET_HDR = 15;
const NEEDS_CHECKSUM = 1;
const UDP_SEGMENTS = 5;
const UDP_CHECKSUM_AT = 6;

/** Sends an Ethernet frame as one that stands for packets of so many bytes, behind the first `headerBytes`. */
export function sendSuper(ifindex: number, frame: Uint8Array, headerBytes: number, segmentBytes: number): void {
  const libc = koffi.load(null);
  const call = (declaration: string, ...args: unknown[]): number => {
    const result: number = libc.func(declaration)(...args);
    if (result < 0) throw new Error(`${declaration} fails: errno ${koffi.errno()}`);
    return result;
  };
  const offload = new DataView(new ArrayBuffer(10));
  const isLittle = endianness() === 'LE';
  offload.setUint8(0, NEEDS_CHECKSUM);
  offload.setUint8(1, UDP_SEGMENTS);
  [headerBytes, segmentBytes, headerBytes - 8, UDP_CHECKSUM_AT].forEach((value, i) => {
    offload.setUint16(2 + 2 * i, value, isLittle);
  });
  const message = Buffer.concat([Buffer.from(offload.buffer), frame]);
  const address = new DataView(new ArrayBuffer(20));
  address.setUint16(0, AF_PACKET, isLittle);
  address.setUint16(2, (frame[12] as number) * 256 + (frame[13] as number));
  address.setInt32(4, ifindex, isLittle);
  const fd = call('int socket(int, int, int)', AF_PACKET, SOCK_RAW, 0);
  try {
    const on = Buffer.from(Int32Array.of(1).buffer);
    call('int setsockopt(int, int, int, const void *, uint32_t)', fd, SOL_PACKET, PACKET_VNET_HDR, on, on.length);
    const to = Buffer.from(address.buffer);
    call(
      'long sendto(int, const void *, size_t, int, const void *, uint32_t)',
      ...[fd, message, message.length, 0, to, to.length],
    );
  } finally {
    call('int close(int)', fd);
  }
}
