// A received frame under examination. `parse` checks once; after it answered NO_DROP no accessor can leave the frame.
import { Counter, NO_DROP } from '../counters';
import { PACKET, RxOption } from '../limits';
import { Aeth } from './aeth';
import { AtomicAckEth, AtomicEth } from './atomiceth';
import { BTH_BYTES, Bth } from './bth';
import { Deth } from './deth';
import { ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, VLAN_BYTES } from './ethernet';
import { FETH_BYTES, Feth } from './feth';
import { ICRC_BYTES, icrcOf, rxeFlushIcrc, solveIdentification } from './icrc';
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
  /** End of pad: where the ICRC begins. */
  end: usize;
  payload: usize;
  payloadBytes: u32;
  options: u32;
  /** Copied out of the BTH once: the frame may lie in memory that others can write. */
  opcode: u32;
  psn: u32;
  destQpn: u32;
  pkey: u32;
  frameBytes: u32;
  isAckRequested: bool;
  isSolicited: bool;
  isIpv6: bool;
  isMarked: bool;

  /** The one packet that is looked at. */
  static current(): Packet {
    return changetype<Packet>(PACKET);
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

  /** Everything that can be said of a frame without knowing whom it is for, but the ICRC. */
  parse(frame: usize, bytes: u32, options: u32): Counter {
    this.frameBytes = bytes;
    this.options = options;
    if (bytes < ETHERNET_BYTES + VLAN_BYTES) return Counter.drop_short;
    let ethernet = Ethernet.at(frame);
    let type = ethernet.type;
    this.ip = frame + ethernet.bytes;
    let left = bytes - ethernet.bytes;
    if (type == ETHERTYPE_IPV4) return this.parseIpv4(left);
    if (type == ETHERTYPE_IPV6) return this.parseIpv6(left);
    return Counter.drop_ethertype;
  }

  private parseIpv4(left: u32): Counter {
    let ip = Ipv4.at(this.ip);
    if (left < IPV4_BYTES) return Counter.drop_short;
    if (ip.versionIhl != 0x45) return Counter.drop_ip_header;
    let length = ip.totalLength;
    if (length < IPV4_BYTES || length > left) return Counter.drop_ip_header;
    if (!ip.isSumRight) return Counter.drop_ip_checksum;
    if (ip.isFragment) return Counter.drop_ip_fragment;
    if (ip.protocol != PROTOCOL_UDP) return Counter.drop_not_udp;
    this.isIpv6 = false;
    this.isMarked = (ip.tos & 3) == 3;
    return this.parseUdp(this.ip + IPV4_BYTES, length - IPV4_BYTES);
  }

  private parseIpv6(left: u32): Counter {
    let ip = Ipv6.at(this.ip);
    if (left < IPV6_BYTES) return Counter.drop_short;
    if (ip.version != 6) return Counter.drop_ip_header;
    let length = ip.payloadLength;
    if (length > left - IPV6_BYTES) return Counter.drop_ip_header;
    if (ip.nextHeader != PROTOCOL_UDP) return Counter.drop_not_udp;
    this.isIpv6 = true;
    this.isMarked = (ip.trafficClass & 3) == 3;
    return this.parseUdp(this.ip + IPV6_BYTES, length);
  }

  private parseUdp(ptr: usize, left: u32): Counter {
    let udp = Udp.at(ptr);
    if (left < UDP_BYTES) return Counter.drop_udp_length;
    if (udp.destPort != ROCE_PORT) return Counter.drop_udp_port;
    if (udp.length != left) return Counter.drop_udp_length;
    return this.parseTransport(ptr + UDP_BYTES, left - UDP_BYTES);
  }

  private parseTransport(ptr: usize, left: u32): Counter {
    if (left < BTH_BYTES + ICRC_BYTES) return Counter.drop_length;
    let bth = Bth.at(ptr);
    this.bthPtr = ptr;
    if (bth.version != 0) return Counter.drop_transport_version;
    let opcode = bth.opcode;
    if (!isKnown(opcode)) return Counter.drop_opcode;
    let headers = headerBytes(opcode);
    let pad = bth.pad;
    // the pad fills the payload up to a multiple of four, no more: the whole is one too
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

  get isIcrcRight(): bool {
    return this.isIcrc(icrcOf(this.ip, this.end), <u32>(this.end - this.ip));
  }

  /** Whether this is a FLUSH with the ICRC that rxe gives it (Quirk.RXE_FLUSH_ICRC). */
  get isIcrcOfRxe(): bool {
    if (!isFlush(this.opcode)) return false;
    let covered = <u32>(this.end - this.ip) + <u32>(this.end - this.bthPtr);
    return this.isIcrc(rxeFlushIcrc(icrcOf(this.ip, this.end), this.bthPtr, this.end), covered);
  }

  /** Whether the packet's ICRC is `found`, computed over so many bytes, but for an identification that is not known. */
  private isIcrc(found: u32, bytes: u32): bool {
    let wanted = load<u32>(this.end);
    if (found == wanted) return true;
    if (!(this.options & <u32>RxOption.IP_ID_UNKNOWN) || this.isIpv6) return false;
    return solveIdentification(bytes, wanted, found) >= 0;
  }
}
