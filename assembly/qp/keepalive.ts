// Keep-alives: signs of a peer from which nothing comes. A requester with nothing in flight repeats its last PSN by an
// RDMA WRITE of no bytes. The responder acknowledges it as a duplicate and does not carry it out (IBTA 9.7.5.1.1). So
// it needs no receive, no credit, no key and no right, takes no PSN, and has no completion.
import { PeerSign, QpState } from '../codes';
import { BTH_BYTES, Bth } from '../wire/bth';
import { headerBytes, Opcode } from '../wire/opcode';
import { psnAdd } from '../wire/psn';
import { Reth } from '../wire/reth';
import { Qp } from './qp';
import { schedule } from './schedule';

/** Returns what was heard of the peer since the last call. @param asks whether a silent peer is sent a keep-alive */
export function takeSign(qp: Qp, asks: bool): PeerSign {
  let isHeard = qp.isPeerHeard;
  qp.isPeerHeard = false;
  if (isHeard) return PeerSign.HEARD;
  if (qp.unackedPsn != qp.unsentPsn) return PeerSign.AWAITED;
  if (asks && (qp.state == QpState.RTS || qp.state == QpState.SQD)) {
    qp.isKeepAliveDue = true;
    schedule(qp);
  }
  return PeerSign.SILENT;
}

/** Writes a keep-alive to `frame`; returns its length, 0 when none is due. */
export function nextKeepAlive(qp: Qp, frame: usize): u32 {
  if (!qp.isKeepAliveDue) return 0;
  qp.isKeepAliveDue = false;
  // a request has left meanwhile, which the peer will acknowledge
  if (qp.unackedPsn != qp.unsentPsn) return 0;
  let bth = qp.path.begin(frame);
  let psn = psnAdd(qp.unackedPsn, -1);
  Bth.at(bth).write(Opcode.RDMA_WRITE_ONLY, false, 0, qp.pkey, qp.destQpn, true, psn, qp.migReq);
  Reth.at(bth + BTH_BYTES).write(0, 0, 0);
  return qp.path.close(frame, bth + headerBytes(Opcode.RDMA_WRITE_ONLY));
}

export function resetKeepAlive(qp: Qp): void {
  qp.isPeerHeard = false;
  qp.isKeepAliveDue = false;
}
