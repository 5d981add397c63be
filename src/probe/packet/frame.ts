/** One RoCEv2 frame as an object. Only encode and decode deal with the byte order of the wire. */

/** UDP port of RoCEv2. */
export const ROCE_PORT = 4791;

/** Ethernet header. */
export interface Eth {
  /** Destination MAC address. */
  dst: string;
  /** Source MAC address. */
  src: string;
  /** Tag control information of one 802.1Q tag. */
  vlan?: number;
}
/** IPv4 header without options. */
export interface Ip4 {
  /** Version. */
  version: 4;
  /** Type of service: DSCP and ECN, 8 bits. */
  tos: number;
  /** Identification, 16 bits. */
  id: number;
  /** Flags and fragment offset, 16 bits; 0x4000 = do not fragment. */
  fragment: number;
  /** Time to live. */
  ttl: number;
  /** Source address. */
  src: string;
  /** Destination address. */
  dst: string;
  /** Derived when absent. */
  totalLength?: number;
  /** Header checksum; derived when absent. */
  checksum?: number;
}
/** IPv6 header. */
export interface Ip6 {
  /** Version. */
  version: 6;
  /** Traffic class: DSCP and ECN, 8 bits. */
  trafficClass: number;
  /** Flow label, 20 bits. */
  flowLabel: number;
  /** Hop limit. */
  hopLimit: number;
  /** Source address. */
  src: string;
  /** Destination address. */
  dst: string;
  /** Derived when absent. */
  payloadLength?: number;
}
/** UDP header. */
export interface Udp {
  /** Source port. */
  sport: number;
  /** Destination port, 4791 for RoCEv2. */
  dport: number;
  /** Checksum; RoCEv2 sends 0. */
  checksum: number;
  /** Derived when absent. */
  length?: number;
}
/** Base transport header (IBTA 9.2). */
export interface Bth {
  /** Class and operation, 8 bits. */
  opcode: number;
  /** Solicited event. */
  solicited: boolean;
  /** Migration state: set when migrated. */
  migReq: boolean;
  /** PadCnt; derived when absent. */
  pad?: number;
  /** Transport version, 0. */
  version: number;
  /** Partition key. */
  pkey: number;
  /** Forward explicit congestion notification. */
  fecn: boolean;
  /** Backward explicit congestion notification, set in CNPs. */
  becn: boolean;
  /** The reserved bits of byte 4; 0 when absent. */
  reserved6?: number;
  /** Queue pair number of the destination. */
  destQp: number;
  /** Acknowledge request. */
  ackReq: boolean;
  /** The reserved bits of byte 8; 0 when absent. */
  reserved7?: number;
  /** Packet sequence number, 24 bits. */
  psn: number;
}
/** RDMA extended transport header: the memory that a WRITE or READ names. */
export interface Reth {
  /** Address. */
  va: bigint;
  /** Remote key. */
  rkey: number;
  /** Bytes of the whole message. */
  length: number;
}
/** Header of atomic operations. */
export interface AtomicEth {
  /** Address. */
  va: bigint;
  /** Remote key. */
  rkey: number;
  /** The value that COMPARE_SWAP writes, or that FETCH_ADD adds. */
  swapAdd: bigint;
  /** The value that COMPARE_SWAP compares with. */
  compare: bigint;
}
/** ACK extended transport header. */
export interface Aeth {
  /** Kind and code: ACK with credits, RNR NAK with timer, NAK with code. */
  syndrome: number;
  /** Message sequence number, 24 bits. */
  msn: number;
}
/** Datagram extended transport header. */
export interface Deth {
  /** Queue key. */
  qkey: number;
  /** Queue pair number of the source. */
  srcQp: number;
  /** The reserved byte; 0 when absent. */
  reserved8?: number;
}
/** FLUSH extended transport header. */
export interface Feth {
  /** Placement type: bit 0 global visibility, bit 1 persistence. */
  placement: number;
  /** Selectivity level: 0 a range, 1 a memory region. */
  selectivity: number;
  /** The reserved bits; 0 when absent. */
  reserved26?: number;
}
/** Headers after the BTH, as the opcode determines; `immdt`, `ieth` and `atomicack` are plain numbers. */
export interface Extensions {
  /** Of datagrams. */
  deth?: Deth;
  /** Of FLUSH. */
  feth?: Feth;
  /** Of the first packet of a WRITE, of READs and of FLUSH. */
  reth?: Reth;
  /** Of atomic operations. */
  atomiceth?: AtomicEth;
  /** Of ACKs and of responses. */
  aeth?: Aeth;
  /** Immediate data; the four bytes of the wire, read big-endian. */
  immdt?: number;
  /** R_Key of SEND with invalidate; the four bytes of the wire, read big-endian. */
  ieth?: number;
  /** The value before an atomic operation. */
  atomicack?: bigint;
}
/** A RoCEv2 frame. */
export interface Frame extends Extensions {
  /** Ethernet header. */
  eth: Eth;
  /** IP header. */
  ip: Ip4 | Ip6;
  /** UDP header. */
  udp: Udp;
  /** Base transport header. */
  bth: Bth;
  /** Payload, without padding. */
  payload: Uint8Array;
  /** Bytes after the payload; (-length & 3) zeroes when absent. */
  padding?: Uint8Array;
  /** The four bytes of the wire, read big-endian; computed when absent. */
  icrc?: number;
  /** Bytes after the IP packet (Ethernet's own padding). */
  trailer?: Uint8Array;
}
/** A frame that was decoded: no field is absent that every frame has. */
export type Decoded = Required<Pick<Frame, 'padding' | 'icrc' | 'trailer'>> &
  Frame & {
    /** Base transport header. */
    bth: Required<Bth>;
    /** The correct ICRC. */
    icrcExpected: number;
    /** Whether the frame has it. */
    icrcOk: boolean;
  };
