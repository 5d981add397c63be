/**
 * A link in the peer's namespace (netns.ts). The program ends with its standard input.
 * `echo packet|udp|xdp INTERFACE ADDRESS...`: prints "ready", then replies to each frame with its payload, the first 62
 * bytes of the frame as received, and the descriptor's options (4 bytes).
 * `bursts packet|udp SOURCE DESTINATION [MAC]`: sends bursts of five and of three frames, prints features and counters.
 * `knock ADDRESS [BYTES]`: sends a datagram to the RoCE port, prints "refused" (by ICMP) or "quiet".
 */
import { createSocket } from 'node:dgram';
import { PacketLink } from '../../src/link/packet.js';
import { UdpLink } from '../../src/link/udp.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import { Rig, udpFrame } from './rig.js';

const [command, first = '', second = '', ...rest] = process.argv.slice(2);
process.stdin.resume().on('end', () => process.exit(0));
if (command === 'echo') echo(first, second, rest);
else if (command === 'bursts') sendBursts(first, second, rest[0] as string, rest[1]);
else probePort(first, Number(second || 5));

function openerOf(kind: string) {
  return { packet: PacketLink.open, udp: UdpLink.open, xdp: XdpLink.open }[kind] ?? PacketLink.open;
}

function sendBursts(kind: string, source: string, destination: string, mac = '00:00:00:00:00:00'): void {
  const link = openerOf(kind)({ addresses: [source] });
  const before = link.features.gso !== undefined;
  let changes = 0;
  link.watchInterface(() => changes++);
  const rig = new Rig(link);
  const destMac = mac.split(':').map((byte) => Number.parseInt(byte, 16));
  const frame = (id: number) =>
    udpFrame({ source, destination, destMac, srcMac: [...link.interface.mac], id, payload: Buffer.alloc(1000, id) });
  for (const count of [5, 3]) rig.putBurst(...Array.from({ length: count }, (_, id) => frame(id)));
  const taken = link.send(0);
  const { tx_frames, tx_gso_bursts, tx_gso_refused, tx_errors } = link.counters();
  const after = link.features.gso !== undefined;
  console.log(JSON.stringify({ before, after, changes, taken, tx_frames, tx_gso_bursts, tx_gso_refused, tx_errors }));
}

function echo(kind: string, device: string, addresses: string[]): void {
  const rig = new Rig(openerOf(kind)({ interface: device, addresses }));
  const turn = () => {
    while (rig.link.receive(0) > 0) {
      for (const { frame, options } of rig.take()) {
        const answer = answerTo(frame, options);
        if (answer) rig.put(answer);
      }
      rig.link.send(0);
    }
    rig.link.wait(0, true, turn);
  };
  turn();
  console.log('ready');
}

function answerTo(frame: Buffer, options: number): Buffer | undefined {
  const ip = frame.readUInt16BE(12) === 0x8100 ? 18 : 14;
  const isIpv6 = frame.readUInt16BE(ip - 2) === 0x86dd;
  const udp = ip + (isIpv6 ? 40 : 20);
  if (frame.length < udp + 8) return undefined;
  const seen = Buffer.alloc(66);
  frame.copy(seen, 0, 0, 62);
  seen.writeUInt32LE(options, 62);
  const text = (from: number) =>
    isIpv6
      ? Array.from({ length: 8 }, (_, i) => frame.readUInt16BE(from + 2 * i).toString(16)).join(':')
      : frame.subarray(from, from + 4).join('.');
  return udpFrame({
    source: text(ip + (isIpv6 ? 24 : 16)),
    destination: text(ip + (isIpv6 ? 8 : 12)),
    destMac: [...frame.subarray(6, 12)],
    srcMac: [...frame.subarray(0, 6)],
    trafficClass: isIpv6 ? (frame.readUInt16BE(ip) >> 4) & 0xff : (frame[ip + 1] as number),
    ttl: 33,
    id: 4242,
    payload: Buffer.concat([frame.subarray(udp + 8), seen]),
  });
}

function probePort(address: string, bytes: number): void {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.on('error', () => {
    console.log('refused');
    process.exit(0);
  });
  socket.connect(4791, address, () => {
    socket.send(Buffer.alloc(bytes, 'knock'));
    setTimeout(() => {
      console.log('quiet');
      process.exit(0);
    }, 200);
  });
}
