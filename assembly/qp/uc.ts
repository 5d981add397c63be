// Unreliable connections (IBTA 9.8.2): messages arrive in order and whole or not at all, and nothing is ever
// acknowledged. Checks and execution are those of RC; a packet that fails is dropped with the rest of its message.

import { QpState, StateReason, WcStatus } from '../codes';
import { Counter, NO_DROP } from '../counters';
import { isFirst } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { check, Fault } from './check';
import { completeRecv } from './completion';
import { execute } from './execute';
import { Expect, Qp } from './qp';
import { noteFirstPacket } from './responder';
import { setState } from './state';

/** Returns why the packet was dropped, or NO_DROP. */
export function receiveUc(qp: Qp, packet: Packet): Counter {
  noteFirstPacket(qp);
  if (packet.psn != qp.ePsn || isFirst(packet.opcode)) qp.expect = Expect.FIRST;
  qp.ePsn = packet.psn;
  let fault = check(qp, packet);
  if (fault == Fault.NONE) fault = execute(qp, packet);
  if (fault == Fault.NONE || qp.state == QpState.ERR) return NO_DROP;
  // the rest of the message lacks its first packet; the receive WQE stays for the next message
  qp.ePsn = psnAdd(packet.psn, 1);
  qp.expect = Expect.FIRST;
  if (fault == Fault.OPCODE_SEQUENCE) return Counter.drop_unreliable_sequence;
  if (fault == Fault.LOCAL_PROTECTION) {
    completeRecv(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    setState(qp, QpState.ERR, StateReason.RECV_FAILED);
  }
  return Counter.drop_unreliable_refused;
}
