// The path to the peer (rxe_av): all headers in front of the BTH, built once from the address vector and copied into
// each frame.

import { LinkFlag, TX_ICRC_SHIFT, TxOption } from '../codes';
import { Card } from '../host/card';
import { congestionParameter } from '../host/parameter';
import { knowVlan } from '../host/vlan';
import { AvOffset, CongestionParameter } from '../layout';
import { SCRATCH } from '../memorymap';
import { BTH_BYTES } from '../wire/bth';
import { ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, vlanOf } from '../wire/ethernet';
import { headerRegister, ICRC_BYTES, icrcFrom, idTerm, registerBefore } from '../wire/icrc';
import { IPV4_BYTES, Ipv4 } from '../wire/ipv4';
import { IPV6_BYTES, Ipv6 } from '../wire/ipv6';
import { Packet } from '../wire/packet';
import { UDP_BYTES, Udp } from '../wire/udp';
import { GsoBurst } from './gso';
import { offloadedSpan } from './icrcspan';

/** Room for the longest headers: Ethernet 14, VLAN 4, IPv6 40, UDP 8; in whole vectors. */
const TEMPLATE_BYTES: usize = 80;
const FIELD_BYTES: usize = 48;
/** The ECN field of an ECN-capable transport (RFC 3168). */
const ECT_0: u32 = 2;
/** The address vector as the caller set it, kept for queries. */
const VECTOR: usize = AvOffset.DEST_MAC;
const VECTOR_BYTES: usize = AvOffset.SOURCE_PORT + 4 - AvOffset.DEST_MAC;

@unmanaged
@final
export class Path {
  ipOffset: u32;
  bthOffset: u32;
  isIpv6: bool;
  /**
   * Bytes from the UDP header on for which the template's lengths are set, and the ICRC register behind those headers.
   */
  private transport: u32;
  private register: u32;
  /** The same for received packets. */
  private receivedShape: u64;
  private receivedRegister: u32;
  /** VLAN number of the peer; 0 = none. */
  vlan: u32;

  private get template(): usize {
    return changetype<usize>(this) + FIELD_BYTES;
  }
  private get vector(): usize {
    return changetype<usize>(this) + FIELD_BYTES + TEMPLATE_BYTES;
  }

  /** Checks the address vector at scratch(). False when the IP version or a field is out of range. */
  static isVectorValid(): bool {
    let version = load<u32>(SCRATCH, AvOffset.IP_VERSION);
    return (
      (version == 4 || version == 6) &&
      load<u32>(SCRATCH, AvOffset.TRAFFIC_CLASS) < 256 &&
      load<u32>(SCRATCH, AvOffset.HOP_LIMIT) < 256 &&
      load<u32>(SCRATCH, AvOffset.SOURCE_PORT) < 65536
    );
  }

  /**
   * Sets the path from the address vector at scratch().
   * @param isEcnCapable the queue pair reacts to CNPs; false for datagrams
   */
  load(isEcnCapable: bool): void {
    memory.copy(this.vector, SCRATCH + VECTOR, VECTOR_BYTES);
    this.isIpv6 = load<u32>(SCRATCH, AvOffset.IP_VERSION) == 6;
    let source = SCRATCH + <usize>AvOffset.SOURCE_IP;
    let destination = SCRATCH + <usize>AvOffset.DEST_IP;
    let trafficClass = load<u32>(SCRATCH, AvOffset.TRAFFIC_CLASS);
    // a switch marks packets only if they are ECN-capable (RFC 3168), and drops others. All packets of a connection
    // are, ACKs included: adapters keep the ECN field in the queue pair's address vector, and keep it when they mark
    if (isEcnCapable && (trafficClass & 3) == 0 && congestionParameter(CongestionParameter.ECT) != 0)
      trafficClass |= ECT_0;
    let tci = load<u32>(SCRATCH, AvOffset.VLAN_TCI);
    this.vlan = vlanOf(tci);
    knowVlan(this.vlan);
    let hopLimit = load<u32>(SCRATCH, AvOffset.HOP_LIMIT);
    let type = this.isIpv6 ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4;
    this.ipOffset = Ethernet.at(this.template).write(
      SCRATCH + <usize>AvOffset.DEST_MAC,
      SCRATCH + <usize>AvOffset.SOURCE_MAC,
      tci,
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

  /**
   * Returns whether a packet comes from the peer's address. isToLocal: whether it is addressed to the local address of
   * this path (IBTA 9.6.1.5).
   */
  isFromPeer(packet: Packet): bool {
    if (packet.isIpv6 != this.isIpv6) return false;
    let ip = this.template + this.ipOffset;
    return this.isIpv6
      ? memory.compare(Ipv6.at(ip).destPtr, packet.sourceIp, 16) == 0
      : load<u32>(Ipv4.at(ip).destPtr) == load<u32>(packet.sourceIp);
  }

  isToLocal(packet: Packet): bool {
    if (packet.isIpv6 != this.isIpv6) return false;
    let ip = this.template + this.ipOffset;
    return this.isIpv6
      ? memory.compare(Ipv6.at(ip).sourcePtr, packet.destIp, 16) == 0
      : load<u32>(Ipv4.at(ip).sourcePtr) == load<u32>(packet.destIp);
  }

  /** Returns the ICRC register behind the headers of a packet from the peer. */
  receivedIcrcRegister(packet: Packet): u32 {
    let shape = packet.headerShape;
    if (shape != this.receivedShape) {
      this.receivedShape = shape;
      this.receivedRegister = packet.headerRegister;
    }
    return this.receivedRegister;
  }

  /** Starts a frame: returns the address of the BTH. */
  begin(frame: usize): usize {
    return frame + this.bthOffset;
  }

  /**
   * Completes a frame whose payload and pad end at `end`: headers, identification within its GSO burst, ICRC. Returns
   * its length.
   * @param isSpanElsewhere the link fetches the ICRC span (TxOption.FETCH_SPAN)
   */
  close(frame: usize, end: usize, isSpanElsewhere: bool = false): u32 {
    let bth = frame + this.bthOffset;
    let payload = <u32>(end - bth) + ICRC_BYTES;
    this.writeHeaders(frame, payload);
    let register = this.register;
    let identification = GsoBurst.current().add(changetype<usize>(this), payload);
    if (identification != 0 && !this.isIpv6) {
      Ipv4.at(frame + this.ipOffset).identify(identification);
      register ^= idTerm(identification);
    }
    let span = offloadedSpan(<u32>(end - bth) - BTH_BYTES);
    let fetches = isSpanElsewhere ? <u32>TxOption.FETCH_SPAN : 0;
    GsoBurst.current().spanOptions = fetches | (span << TX_ICRC_SHIFT);
    store<u32>(end, span == 0 ? icrcFrom(register, bth, end) : registerBefore(span, register, bth, end));
    return <u32>(end - frame) + ICRC_BYTES;
  }

  /**
   * Completes a frame that is put on no ring: with its whole ICRC, and part of no GSO burst.
   * @param sourcePort 0 = that of the path
   */
  closeApart(frame: usize, end: usize, sourcePort: u32): u32 {
    let bth = frame + this.bthOffset;
    this.writeHeaders(frame, <u32>(end - bth) + ICRC_BYTES);
    let register = this.register;
    if (sourcePort != 0) {
      Udp.at(bth - UDP_BYTES).setSourcePort(sourcePort);
      register = headerRegister(frame + this.ipOffset, this.transport);
    }
    store<u32>(end, icrcFrom(register, bth, end));
    return <u32>(end - frame) + ICRC_BYTES;
  }

  /** Completes a frame with another traffic class and VLAN priority, which is part of no GSO burst. */
  closeInClass(frame: usize, end: usize, trafficClass: u32, priority: u32): u32 {
    let length = this.close(frame, end);
    Ethernet.at(frame).setPriority(priority);
    let ip = frame + this.ipOffset;
    if (this.isIpv6) Ipv6.at(ip).setTrafficClass(trafficClass);
    else Ipv4.at(ip).setTos(trafficClass);
    GsoBurst.current().end();
    return length;
  }

  /** Writes the headers in front of a payload of UDP. */
  private writeHeaders(frame: usize, payload: u32): void {
    let transport = payload + UDP_BYTES;
    if (transport != this.transport) this.setLength(transport);
    this.copyTemplate(frame);
  }

  /** Sets the length fields of the template. Most frames are as long as the one before. */
  private setLength(transport: u32): void {
    let ip = this.template + this.ipOffset;
    if (this.isIpv6) Ipv6.at(ip).close(transport);
    else Ipv4.at(ip).close(transport + IPV4_BYTES, 0);
    Udp.at(this.template + this.bthOffset - UDP_BYTES).close(transport);
    this.transport = transport;
    this.register = headerRegister(ip, transport);
  }

  /** Copies the headers in whole vectors; the last vector ends where the headers do. */
  private copyTemplate(frame: usize): void {
    let template = this.template;
    v128.store(frame, v128.load(template));
    v128.store(frame, v128.load(template, 16), 16);
    let last: usize = this.bthOffset - 16;
    if (last > 32) v128.store(frame, v128.load(template, 32), 32);
    v128.store(frame + last, v128.load(template + last));
  }
}
/** Bytes of a Path with the template and address vector behind its fields. */
export const PATH_BYTES: usize = FIELD_BYTES + TEMPLATE_BYTES + VECTOR_BYTES;
