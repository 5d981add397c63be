// The payload of a packet from the WQE of a send queue.
import { Card } from '../host/card';
import { Gathered, gather, SendWqe } from '../host/wqe';
import { fetchedSpan } from './icrcspan';
import { Qp } from './qp';

/**
 * Copies `bytes` of a work request's payload from `offset` on to the packet, except what the link can fetch.
 * @param isChecked areSgesValid has just accepted its SGEs
 */
export function copyPayload(
  qp: Qp,
  wqe: SendWqe,
  opcode: u32,
  offset: u32,
  to: usize,
  bytes: u32,
  isChecked: bool,
): Gathered {
  if (wqe.isInline) {
    memory.copy(to, wqe.sges + offset, bytes);
    return Gathered.ALL;
  }
  let span = fetchedSpan(opcode, bytes);
  return gather(Card.get().keys, qp.pd, wqe.sges, wqe.sgeCount, offset, to, bytes, isChecked, span);
}
