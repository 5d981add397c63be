// The received packet that is being processed. `open` checks the outer headers of a frame, `parse` the rest of its
// packet; after both have returned NO_DROP no accessor leaves the frame. A super-packet has many packets behind one set
// of outer headers: `next` moves from one to the next, and `parse` is called for each.

import { RX_SEGMENT_SHIFT, RxOption } from '../codes';
import { Counter, NO_DROP } from '../counters';
import { PACKET } from '../memorymap';
import { Aeth } from './aeth';
import { AtomicAckEth, AtomicEth } from './atomiceth';
import { BTH_BYTES, Bth } from './bth';
import { Deth } from './deth';
import { ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, VLAN_BYTES } from './ethernet';
import { FETH_BYTES, Feth } from './feth';
import { foldedIcrc, headerRegister, ICRC_BYTES, icrcFrom, idTerm, rxeFlushIcrc, solveIdentification } from './icrc';
import { Ieth } from './ieth';
import { ImmDt } from './immdt';
import { IPV4_BYTES, Ipv4, PROTOCOL_UDP } from './ipv4';
import { IPV6_BYTES, Ipv6 } from './ipv6';
import { hasPayload, headerBytes, isFlush, isKnown } from './opcode';
import { Reth } from './reth';
import { ROCE_PORT, UDP_BYTES, Udp } from './udp';

@unmanaged
@final
export class Packet {
  ip: usize;
  bthPtr: usize;
  /** End of the pad: where the ICRC begins. */
  end: usize;
  payload: usize;
  payloadBytes: u32;
  /** UDP payload of each packet of a super-packet; 0 = a single packet. */
  private segment: u32;
  /** UDP payload from `bthPtr` on: of this packet and of those behind it. */
  private left: u32;
  /** Bytes in front of `bthPtr` in the frame of a single packet. */
  private outerBytes: u32;
  private isIdUnknown: bool;
  private isFolded: bool;
  /** The assumed IPv4 identification, and the assumed step to that of the next packet. */
  private identification: u32;
  private idStep: u32;
  /** Identification of the first packet of a super-packet. */
  private firstId: u32;
  /** Copied out of the BTH once: others may write the memory of the frame. */
  opcode: u32;
  psn: u32;
  destQpn: u32;
  pkey: u32;
  frameBytes: u32;
  /** VLAN number of the frame; 0 = none. */
  vlan: u32;
  isAckRequested: bool;
  isSolicited: bool;
  isIpv6: bool;
  isMarked: bool;
  /** The ICRC register behind the headers, with identification 0: headerRegister, or a saved copy. */
  register: u32;
  /** Place of a WRITE's or READ's data (host/place), set by the check of its key (qp/check). */
  target: u64;
  /** Packets, and bytes of their frames, that were received but not yet counted for the card. */
  taken: u32;
  takenBytes: u64;

  /** The only packet: the card processes one at a time. */
  static current(): Packet {
    return changetype<Packet>(PACKET);
  }

  /** The header of the frame, which may hold several packets. */
  get ethernet(): Ethernet {
    let network = (this.isIpv6 ? IPV6_BYTES : IPV4_BYTES) + UDP_BYTES;
    return Ethernet.at(this.ip - (this.outerBytes - network));
  }
  get bth(): Bth {
    return Bth.at(this.bthPtr);
  }
  private get extension(): usize {
    return this.bthPtr + BTH_BYTES;
  }
  get reth(): Reth {
    return Reth.at(isFlush(this.opcode) ? this.extension + FETH_BYTES : this.extension);
  }
  get feth(): Feth {
    return Feth.at(this.extension);
  }
  get aeth(): Aeth {
    return Aeth.at(this.extension);
  }
  get deth(): Deth {
    return Deth.at(this.extension);
  }
  get atomicEth(): AtomicEth {
    return AtomicEth.at(this.extension);
  }
  get atomicAckEth(): AtomicAckEth {
    return AtomicAckEth.at(this.extension + 4);
  }
  /** ImmDt and IETH are always the last header before the payload. */
  get imm(): u32 {
    return ImmDt.at(this.payload - 4).raw;
  }
  get invalidateRkey(): u32 {
    return Ieth.at(this.payload - 4).rkey;
  }
  get sourceIp(): usize {
    return this.isIpv6 ? Ipv6.at(this.ip).sourcePtr : Ipv4.at(this.ip).sourcePtr;
  }
  get destIp(): usize {
    return this.isIpv6 ? Ipv6.at(this.ip).destPtr : Ipv4.at(this.ip).destPtr;
  }

  /** Writes the destination address as a GID: an IPv4 address as ::ffff:a.b.c.d. */
  copyDestGid(to: usize): void {
    if (this.isIpv6) {
      memory.copy(to, this.destIp, 16);
    } else {
      store<u64>(to, 0);
      store<u32>(to, 0xffff0000, 8);
      store<u32>(to, load<u32>(this.destIp), 12);
    }
  }

  /**
   * Checks the headers in front of the BTH. Those of a super-packet apply to all its packets, so fields that depend on
   * the length are not checked.
   */
  open(frame: usize, bytes: u32, options: u32): Counter {
    this.segment = options >>> RX_SEGMENT_SHIFT;
    this.isIdUnknown = (options & <u32>RxOption.IP_ID_UNKNOWN) != 0;
    this.isFolded = (options & <u32>RxOption.ICRC_FOLDED) != 0;
    if (bytes < ETHERNET_BYTES + VLAN_BYTES) return Counter.drop_short;
    let ethernet = Ethernet.at(frame);
    let type = ethernet.type;
    this.ip = frame + ethernet.bytes;
    this.vlan = ethernet.vlan;
    let left = bytes - ethernet.bytes;
    let drop =
      type == ETHERTYPE_IPV4
        ? this.openIpv4(left)
        : type == ETHERTYPE_IPV6
          ? this.openIpv6(left)
          : Counter.drop_ethertype;
    this.outerBytes = <u32>(this.bthPtr - frame);
    // bytes behind the UDP datagram in the frame of a single packet count too
    this.frameBytes = bytes;
    return drop;
  }

  private openIpv4(left: u32): Counter {
    let ip = Ipv4.at(this.ip);
    if (left < IPV4_BYTES) return Counter.drop_short;
    if (ip.versionIhl != 0x45) return Counter.drop_ip_header;
    if (this.segment == 0) {
      let length = ip.totalLength;
      if (length < IPV4_BYTES || length > left) return Counter.drop_ip_header;
      if (!ip.isSumRight) return Counter.drop_ip_checksum;
      left = length;
    }
    if (ip.isFragment) return Counter.drop_ip_fragment;
    if (ip.protocol != PROTOCOL_UDP) return Counter.drop_not_udp;
    this.isIpv6 = false;
    this.isMarked = (ip.tos & 3) == 3;
    this.guessIdentification(ip.identification);
    return this.openUdp(this.ip + IPV4_BYTES, left - IPV4_BYTES);
  }

  private openIpv6(left: u32): Counter {
    let ip = Ipv6.at(this.ip);
    if (left < IPV6_BYTES) return Counter.drop_short;
    if (ip.version != 6) return Counter.drop_ip_header;
    left -= IPV6_BYTES;
    if (this.segment == 0) {
      let length = ip.payloadLength;
      if (length > left) return Counter.drop_ip_header;
      left = length;
    }
    if (ip.nextHeader != PROTOCOL_UDP) return Counter.drop_not_udp;
    this.isIpv6 = true;
    this.isMarked = (ip.trafficClass & 3) == 3;
    return this.openUdp(this.ip + IPV6_BYTES, left);
  }

  private openUdp(ptr: usize, left: u32): Counter {
    let udp = Udp.at(ptr);
    if (left < UDP_BYTES) return Counter.drop_udp_length;
    if (udp.destPort != ROCE_PORT) return Counter.drop_udp_port;
    if (this.segment == 0 && udp.length != left) return Counter.drop_udp_length;
    this.bthPtr = ptr + UDP_BYTES;
    this.left = left - UDP_BYTES;
    return NO_DROP;
  }

  /** Moves to the next packet of a super-packet; false when there is none. */
  next(): bool {
    if (this.segment == 0 || this.left <= this.segment) return false;
    this.left -= this.segment;
    this.bthPtr += this.segment;
    this.identification = (this.identification + this.idStep) & 0xffff;
    return true;
  }

  /** Bytes from the BTH to the ICRC. */
  get transportBytes(): u32 {
    return <u32>(this.end - this.bthPtr) + ICRC_BYTES;
  }

  /** Parses a copy of a packet, from the BTH to the ICRC. The headers in front of the BTH are unknown. */
  reopen(bth: usize, bytes: u32): Counter {
    this.segment = 0;
    this.left = bytes;
    this.bthPtr = bth;
    return this.parse();
  }

  /** Checks everything that does not depend on the queue pair, except the ICRC. */
  parse(): Counter {
    let left = this.left;
    if (this.segment != 0) {
      left = min(left, this.segment);
      this.frameBytes = this.outerBytes + left;
    }
    let ptr = this.bthPtr;
    if (left < BTH_BYTES + ICRC_BYTES) return Counter.drop_length;
    let bth = Bth.at(ptr);
    if (bth.version != 0) return Counter.drop_transport_version;
    let opcode = bth.opcode;
    if (!isKnown(opcode)) return Counter.drop_opcode;
    let headers = headerBytes(opcode);
    let pad = bth.pad;
    // the pad fills the payload up to a multiple of four, so the whole is one too
    if ((left & 3) != 0 || left < headers + pad + ICRC_BYTES) return Counter.drop_length;
    let payload = left - headers - pad - ICRC_BYTES;
    if (payload + pad != 0 && !hasPayload(opcode)) return Counter.drop_length;
    this.opcode = opcode;
    this.psn = bth.psn;
    this.destQpn = bth.destQpn;
    this.pkey = bth.pkey;
    this.isAckRequested = bth.isAckRequested;
    this.isSolicited = bth.isSolicited;
    this.payload = ptr + headers;
    this.payloadBytes = payload;
    this.end = ptr + left - ICRC_BYTES;
    return NO_DROP;
  }

  /**
   * Sets the first assumption about the identification. Packets of a super-packet count up from the first one's, or all
   * have the same. Where the link did not see it, they count from 0, and a single packet continues the last count.
   */
  private guessIdentification(seen: u32): void {
    let goesOn = this.isIdUnknown && this.segment == 0;
    if (goesOn) {
      this.identification = (this.identification + this.idStep) & 0xffff;
    } else {
      this.identification = seen;
      this.firstId = seen;
      this.idStep = 1;
    }
  }

  /** Writes the IP header as it was in front of this packet. */
  copyIp(to: usize): void {
    memory.copy(to, this.ip, this.isIpv6 ? IPV6_BYTES : IPV4_BYTES);
    if (this.segment == 0) return;
    if (this.isIpv6) Ipv6.at(to).close(this.transport);
    else Ipv4.at(to).close(IPV4_BYTES + this.transport, this.identification);
  }

  /** Bytes from the UDP header on. */
  private get transport(): u32 {
    return UDP_BYTES + <u32>(this.end - this.bthPtr) + ICRC_BYTES;
  }

  /**
   * Identifies the header fields that the ICRC covers and that may differ between two packets of a connection, apart
   * from the identification; never 0.
   */
  get headerShape(): u64 {
    let flags: u32 = this.isIpv6 ? 0 : load<u16>(this.ip, 6);
    return ((<u64>load<u16>(this.bthPtr - UDP_BYTES)) << 48) | ((<u64>flags) << 32) | this.transport;
  }

  /** The ICRC register behind the headers, with identification 0. */
  get headerRegister(): u32 {
    return headerRegister(this.ip, this.transport);
  }

  /** `register` must be set before. */
  get isIcrcRight(): bool {
    return this.isIcrc(this.icrc, this.coveredBytes);
  }

  /** Returns whether this is a FLUSH with the ICRC that rxe computes (Quirk.RXE_FLUSH_ICRC). */
  get isIcrcOfRxe(): bool {
    if (!isFlush(this.opcode)) return false;
    let covered = this.coveredBytes + <u32>(this.end - this.bthPtr);
    return this.isIcrc(rxeFlushIcrc(this.icrc, this.bthPtr, this.end), covered);
  }

  private get icrc(): u32 {
    let register = this.isIpv6 ? this.register : this.register ^ idTerm(this.identification);
    return this.isFolded ? foldedIcrc(register, this.bthPtr, this.end) : icrcFrom(register, this.bthPtr, this.end);
  }

  /** Bytes from the IP header of a single packet to the pad. */
  private get coveredBytes(): u32 {
    return (this.isIpv6 ? IPV6_BYTES : IPV4_BYTES) + UDP_BYTES + <u32>(this.end - this.bthPtr);
  }

  /**
   * Returns whether the packet's ICRC, computed over `bytes` bytes, is `found`, allowing for an unknown identification.
   */
  private isIcrc(found: u32, bytes: u32): bool {
    let wanted = load<u32>(this.end);
    if (found == wanted) return true;
    let isIdCertain = this.segment == 0 && !this.isIdUnknown;
    if (this.isIpv6 || isIdCertain) return false;
    let bits = solveIdentification(bytes, found ^ wanted);
    if (bits < 0) return false;
    let identification = this.identification ^ bits;
    if (!this.isIdUnknown && identification != this.firstId) return false;
    this.idStep = identification == ((this.identification - this.idStep) & 0xffff) ? 0 : 1;
    this.identification = identification;
    return true;
  }
}
