// The way to the peer: every header in front of the BTH, made once from the address vector and copied into each frame.
import { Card } from '../host/card';
import { parameter } from '../host/parameter';
import { AvOffset, CongestionParameter } from '../layout';
import { LinkFlag, SCRATCH } from '../limits';
import { ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet } from '../wire/ethernet';
import { ICRC_BYTES, icrcOf } from '../wire/icrc';
import { IPV4_BYTES, Ipv4 } from '../wire/ipv4';
import { IPV6_BYTES, Ipv6 } from '../wire/ipv6';
import { Packet } from '../wire/packet';
import { UDP_BYTES, Udp } from '../wire/udp';
import { Run } from './run';

/** Room for the longest template: Ethernet 14, VLAN 4, IPv6 40, UDP 8. */
const TEMPLATE_BYTES: usize = 72;
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

  private get template(): usize {
    return changetype<usize>(this) + 16;
  }
  private get vector(): usize {
    return changetype<usize>(this) + 16 + TEMPLATE_BYTES;
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
    // a switch may mark our packets only if they say that marks are understood (RFC 3168)
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

  /** Gives a frame that was begun another traffic class than the rest. */
  setTrafficClass(frame: usize, trafficClass: u32): void {
    let ip = frame + this.ipOffset;
    if (this.isIpv6) Ipv6.at(ip).setTrafficClass(trafficClass);
    else Ipv4.at(ip).setTos(trafficClass);
  }

  /** Starts a frame: copies the headers. Answers where the BTH goes. */
  begin(frame: usize): usize {
    memory.copy(frame, this.template, this.bthOffset);
    return frame + this.bthOffset;
  }

  /** Ends a frame whose payload and pad end at `end`: its place in a run, lengths, checksum, ICRC. Answers its length. */
  close(frame: usize, end: usize): u32 {
    let ip = frame + this.ipOffset;
    let bth = frame + this.bthOffset;
    let payload = <u32>(end - bth) + ICRC_BYTES;
    let transport = payload + UDP_BYTES;
    let identification = Run.current().add(changetype<usize>(this), payload);
    if (this.isIpv6) Ipv6.at(ip).close(transport);
    else Ipv4.at(ip).close(transport + IPV4_BYTES, identification);
    Udp.at(bth - UDP_BYTES).close(transport);
    store<u32>(end, icrcOf(ip, bth, end, identification));
    return <u32>(end - frame) + ICRC_BYTES;
  }
}
/** Bytes of a Path with what lies behind its fields. */
export const PATH_BYTES: usize = 16 + TEMPLATE_BYTES + VECTOR_BYTES;
