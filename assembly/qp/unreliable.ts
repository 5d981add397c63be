// Unreliable connections (IBTA 9.8.2): messages in order, whole or not at all, and never a word to the sender. The checks and
// the execution are those of a reliable connection; what fails is dropped together with the rest of its message.
import { Counter, NO_DROP } from '../counters';
import { QpState, WcStatus } from '../limits';
import { isFirst } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { completeRecv } from './complete';
import { examine, Fault } from './examine';
import { execute } from './execute';
import { Expect, Qp } from './qp';
import { noteContact } from './responder';
import { setState } from './state';

/** Answers why the packet was dropped, or NO_DROP. */
export function receiveUnreliable(qp: Qp, packet: Packet): Counter {
  noteContact(qp);
  if (packet.psn != qp.ePsn || isFirst(packet.opcode)) qp.expect = Expect.FIRST;
  qp.ePsn = packet.psn;
  let fault = examine(qp, packet);
  if (fault == Fault.NONE) fault = execute(qp, packet);
  if (fault == Fault.NONE || qp.state == QpState.ERR) return NO_DROP;
  // the rest of the message finds no beginning any more; a receive work request waits for the next one
  qp.ePsn = psnAdd(packet.psn, 1);
  qp.expect = Expect.FIRST;
  if (fault == Fault.OPCODE_SEQUENCE) return Counter.drop_unreliable_sequence;
  if (fault == Fault.LOCAL_MEMORY) {
    completeRecv(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    setState(qp, QpState.ERR);
  }
  return Counter.drop_unreliable_refused;
}
