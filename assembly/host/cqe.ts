// A completion queue entry. Its layout is exported as CqeOffset (layout.ts).

@unmanaged
@final
export class Cqe {
  wrId: f64;
  status: u32;
  opcode: u32;
  byteLen: u32;
  imm: u32;
  invalidatedRkey: u32;
  qpn: u32;
  srcQpn: u32;
  flags: u32;
  /** The AETH syndrome that ended the request, 0 = none. */
  syndrome: u32;
  /** The PSN at which the request ended. */
  psn: u32;
  qp: usize;
  /** Expired ACK timers and RNR NAKs since the queue pair last made progress. */
  timeouts: u32;
  rnrs: u32;
  /** Tag control information of a received datagram, if it was tagged. */
  vlanTci: u16;
  /** Index of the P_Key by which a datagram was taken. */
  pkeyIndex: u16;

  /** MAC address of a datagram's sender, 6 bytes. A datagram has no timeouts and no RNR NAKs. */
  get sourceMac(): usize {
    return changetype<usize>(this) + offsetof<Cqe>('timeouts');
  }
}
