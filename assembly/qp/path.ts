// The way to the peer: every header in front of the BTH, made once from the address vector and copied into each frame.
import { Card } from '../host/card';
import { parameter } from '../host/parameter';
import { AvOffset, CongestionParameter } from '../layout';
import { LinkFlag, SCRATCH } from '../limits';
import { BTH_BYTES } from '../wire/bth';
import { ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet } from '../wire/ethernet';
import { headerRegister, ICRC_BYTES, icrcFrom, idTerm, linkShare, registerBefore } from '../wire/icrc';
import { IPV4_BYTES, Ipv4 } from '../wire/ipv4';
import { IPV6_BYTES, Ipv6 } from '../wire/ipv6';
import { Packet } from '../wire/packet';
import { UDP_BYTES, Udp } from '../wire/udp';
import { Run } from './run';

/** Room for the longest template: Ethernet 14, VLAN 4, IPv6 40, UDP 8; in whole vectors. */
const TEMPLATE_BYTES: usize = 80;
const FIELD_BYTES: usize = 48;
/** ECN-capable transport. */
const ECT_0: u32 = 2;
/** The address vector as it was handed in, kept for queries. */
const VECTOR: usize = AvOffset.DEST_MAC;
const VECTOR_BYTES: usize = AvOffset.SOURCE_PORT + 4 - AvOffset.DEST_MAC;

@unmanaged
@final
export class Path {
  ipOffset: u32;
  bthOffset: u32;
  isIpv6: bool;
  /** Bytes from the UDP header on that the template is made out for, and the register of the ICRC behind it. */
  private transport: u32;
  private register: u32;
  /** The same for received packets. */
  private receivedShape: u64;
  private receivedRegister: u32;

  private get template(): usize {
    return changetype<usize>(this) + FIELD_BYTES;
  }
  private get vector(): usize {
    return changetype<usize>(this) + FIELD_BYTES + TEMPLATE_BYTES;
  }

  /** From the address vector at scratch(). False when its IP version is none. */
  static isVectorValid(): bool {
    let version = load<u32>(SCRATCH, AvOffset.IP_VERSION);
    return (
      (version == 4 || version == 6) &&
      load<u32>(SCRATCH, AvOffset.TRAFFIC_CLASS) < 256 &&
      load<u32>(SCRATCH, AvOffset.HOP_LIMIT) < 256 &&
      load<u32>(SCRATCH, AvOffset.SOURCE_PORT) < 65536
    );
  }

  /** Takes over the address vector at scratch(), for one that slows down when it is asked to, or for datagrams. */
  load(heedsMarks: bool): void {
    memory.copy(this.vector, SCRATCH + VECTOR, VECTOR_BYTES);
    this.isIpv6 = load<u32>(SCRATCH, AvOffset.IP_VERSION) == 6;
    let source = SCRATCH + <usize>AvOffset.SOURCE_IP;
    let destination = SCRATCH + <usize>AvOffset.DEST_IP;
    let trafficClass = load<u32>(SCRATCH, AvOffset.TRAFFIC_CLASS);
    // a switch may mark our packets only if they say that marks are understood (RFC 3168), and drops others. All packets of
    // a connection say so, ACKs as well: adapters keep the code in the address of the queue pair, and mark on anything
    if (heedsMarks && (trafficClass & 3) == 0 && parameter(CongestionParameter.ECT) != 0) trafficClass |= ECT_0;
    let hopLimit = load<u32>(SCRATCH, AvOffset.HOP_LIMIT);
    let type = this.isIpv6 ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4;
    this.ipOffset = Ethernet.at(this.template).write(
      SCRATCH + <usize>AvOffset.DEST_MAC,
      SCRATCH + <usize>AvOffset.SOURCE_MAC,
      load<u32>(SCRATCH, AvOffset.VLAN_TCI),
      type,
    );
    let ip = this.template + this.ipOffset;
    if (this.isIpv6)
      Ipv6.at(ip).write(source, destination, trafficClass, load<u32>(SCRATCH, AvOffset.FLOW_LABEL), hopLimit);
    else Ipv4.at(ip).write(source, destination, trafficClass, hopLimit);
    let udp = this.ipOffset + (this.isIpv6 ? IPV6_BYTES : IPV4_BYTES);
    let card = Card.get();
    let fixed = (card.linkFlags & LinkFlag.FIXED_SOURCE_PORT) != 0;
    Udp.at(this.template + udp).write(fixed ? card.linkSourcePort : load<u32>(SCRATCH, AvOffset.SOURCE_PORT));
    this.bthOffset = udp + UDP_BYTES;
    this.transport = 0;
    this.receivedShape = 0;
  }

  /** Writes the address vector back to scratch(). */
  query(): void {
    memory.copy(SCRATCH + VECTOR, this.vector, VECTOR_BYTES);
  }

  /** Whether a packet came from the peer's address / to the address that this path starts from (IBTA 9.6.1.5). */
  isFromPeer(packet: Packet): bool {
    if (packet.isIpv6 != this.isIpv6) return false;
    let ip = this.template + this.ipOffset;
    return this.isIpv6
      ? memory.compare(Ipv6.at(ip).destPtr, packet.sourceIp, 16) == 0
      : load<u32>(Ipv4.at(ip).destPtr) == load<u32>(packet.sourceIp);
  }

  isToUs(packet: Packet): bool {
    if (packet.isIpv6 != this.isIpv6) return false;
    let ip = this.template + this.ipOffset;
    return this.isIpv6
      ? memory.compare(Ipv6.at(ip).sourcePtr, packet.destIp, 16) == 0
      : load<u32>(Ipv4.at(ip).sourcePtr) == load<u32>(packet.destIp);
  }

  /** The ICRC's register behind the headers of a packet from the peer to us. */
  registerOf(packet: Packet): u32 {
    let shape = packet.headerShape;
    if (shape != this.receivedShape) {
      this.receivedShape = shape;
      this.receivedRegister = packet.headerRegister;
    }
    return this.receivedRegister;
  }

  /** Starts a frame: answers where the BTH goes. */
  begin(frame: usize): usize {
    return frame + this.bthOffset;
  }

  /** Ends a frame whose payload and pad end at `end`: headers, its place in a run, ICRC. Answers its length. */
  close(frame: usize, end: usize): u32 {
    let bth = frame + this.bthOffset;
    let payload = <u32>(end - bth) + ICRC_BYTES;
    if (payload + UDP_BYTES != this.transport) this.makeOut(payload + UDP_BYTES);
    this.copyTemplate(frame);
    let register = this.register;
    let identification = Run.current().add(changetype<usize>(this), payload);
    if (identification != 0 && !this.isIpv6) {
      Ipv4.at(frame + this.ipOffset).identify(identification);
      register ^= idTerm(identification);
    }
    let share: u32 = 0;
    if (Card.get().linkFlags & <u32>LinkFlag.ICRC_OFFLOAD) share = linkShare(<u32>(end - bth) - BTH_BYTES);
    Run.current().share = share;
    store<u32>(end, share == 0 ? icrcFrom(register, bth, end) : registerBefore(share, register, bth, end));
    return <u32>(end - frame) + ICRC_BYTES;
  }

  /** The same for a frame of another traffic class, which is no part of a run. */
  closeAs(frame: usize, end: usize, trafficClass: u32): u32 {
    let length = this.close(frame, end);
    let ip = frame + this.ipOffset;
    if (this.isIpv6) Ipv6.at(ip).setTrafficClass(trafficClass);
    else Ipv4.at(ip).setTos(trafficClass);
    Run.current().end();
    return length;
  }

  /** Makes the template out for so many bytes from the UDP header on: most frames are as long as the one before. */
  private makeOut(transport: u32): void {
    let ip = this.template + this.ipOffset;
    if (this.isIpv6) Ipv6.at(ip).close(transport);
    else Ipv4.at(ip).close(transport + IPV4_BYTES, 0);
    Udp.at(this.template + this.bthOffset - UDP_BYTES).close(transport);
    this.transport = transport;
    this.register = headerRegister(ip, transport);
  }

  /** Copies the headers in whole vectors, of which the last ends where they do. */
  private copyTemplate(frame: usize): void {
    let template = this.template;
    v128.store(frame, v128.load(template));
    v128.store(frame, v128.load(template, 16), 16);
    let last: usize = this.bthOffset - 16;
    if (last > 32) v128.store(frame, v128.load(template, 32), 32);
    v128.store(frame + last, v128.load(template + last));
  }
}
/** Bytes of a Path with what lies behind its fields. */
export const PATH_BYTES: usize = FIELD_BYTES + TEMPLATE_BYTES + VECTOR_BYTES;
