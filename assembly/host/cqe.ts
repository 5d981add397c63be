// A completion. Its layout is exported as CqeOffset (index.ts).

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
  /** The AETH syndrome that ended the request, 0 when none came. */
  syndrome: u32;
  /** The PSN at which it ended. */
  psn: u32;
  qp: usize;
  /** Expired ACK timers and RNR NAKs since the queue pair last made progress. */
  timeouts: u32;
  rnrs: u32;
}
