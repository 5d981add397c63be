/** One RoCEv2 frame as an object. Numbers are what they mean; the byte order of the wire exists only in encode and decode. */
export const ROCE_PORT = 4791;

export interface Eth {
  dst: string;
  src: string;
  /** Tag control information of one 802.1Q tag. */
  vlan?: number;
}
export interface Ip4 {
  version: 4;
  tos: number;
  id: number;
  /** Flags and fragment offset, 16 bits; 0x4000 = do not fragment. */
  fragment: number;
  ttl: number;
  src: string;
  dst: string;
  /** Derived when absent. */
  totalLength?: number;
  checksum?: number;
}
export interface Ip6 {
  version: 6;
  trafficClass: number;
  flowLabel: number;
  hopLimit: number;
  src: string;
  dst: string;
  /** Derived when absent. */
  payloadLength?: number;
}
export interface Udp {
  sport: number;
  dport: number;
  checksum: number;
  /** Derived when absent. */
  length?: number;
}
export interface Bth {
  opcode: number;
  solicited: boolean;
  migReq: boolean;
  /** PadCnt; derived when absent. */
  pad?: number;
  version: number;
  pkey: number;
  fecn: boolean;
  becn: boolean;
  destQp: number;
  ackReq: boolean;
  psn: number;
}
export interface Reth {
  va: bigint;
  rkey: number;
  length: number;
}
export interface AtomicEth {
  va: bigint;
  rkey: number;
  /** What COMPARE_SWAP writes, or what FETCH_ADD adds. */
  swapAdd: bigint;
  compare: bigint;
}
export interface Aeth {
  syndrome: number;
  msn: number;
}
export interface Deth {
  qkey: number;
  srcQp: number;
}
export interface Feth {
  placement: number;
  selectivity: number;
}
/** Headers after the BTH: those that the opcode names; `immdt`, `ieth` and `atomicack` are plain numbers. */
export interface Extensions {
  deth?: Deth;
  feth?: Feth;
  reth?: Reth;
  atomiceth?: AtomicEth;
  aeth?: Aeth;
  /** The four bytes of the wire, read big-endian. */
  immdt?: number;
  ieth?: number;
  atomicack?: bigint;
}
export interface Frame extends Extensions {
  eth: Eth;
  ip: Ip4 | Ip6;
  udp: Udp;
  bth: Bth;
  payload: Uint8Array;
  /** Bytes after the payload; (-length & 3) zeros when absent. */
  padding?: Uint8Array;
  /** The four bytes of the wire, read big-endian; computed when absent. */
  icrc?: number;
  /** Bytes after the IP packet (Ethernet's own padding). */
  trailer?: Uint8Array;
}
export type Decoded = Required<Pick<Frame, 'padding' | 'icrc' | 'trailer'>> &
  Frame & { bth: Required<Bth> /** What the ICRC should be. */; icrcExpected: number; icrcOk: boolean };
