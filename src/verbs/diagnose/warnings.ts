/** Warnings of the process about what would otherwise fail in silence. Each is given once for each object. */
import { emitWarning, type WarningCode } from '../../base/warning.js';
import type { Context } from '../objects/context.js';
import type { Qp } from '../objects/qp.js';

/** By code. */
const warned = new Map<WarningCode, WeakSet<object>>();

function warn(code: WarningCode, about: object, text: string): void {
  const objects = warned.get(code) ?? new WeakSet();
  warned.set(code, objects);
  if (objects.has(about)) return;
  objects.add(about);
  emitWarning(code, text);
}

/** A queue pair refuses its peer for want of a receive (QP_NO_RECEIVE). */
export function warnOfNoReceive(qp: Qp): void {
  const where =
    qp.srq === undefined
      ? `${qp} has no receive: post some with qp.postRecv`
      : `${qp.srq} of ${qp} has no receive: post some with srq.postRecv`;
  warn(
    'WASM_ROCE_NO_RECEIVE',
    qp,
    `${where}, before the peer sends. A message has waited for one for a second, and its sender repeats it (RNR NAK)`,
  );
}

/** No packet for a queue pair has had the right ICRC (QP_ICRC_ERR). */
export function warnOfIcrc(qp: Qp): void {
  const { device } = qp;
  warn(
    'WASM_ROCE_ICRC',
    device,
    `${device} drops the packets for ${qp}: none has had the right ICRC (drop_icrc). A gateway or a firewall on the way ` +
      'changes them, or the sender computes it over other fields',
  );
}

/** Packets are not acknowledged, and the kernel does not find the next hop. */
export function warnOfNoNeighbour(device: Context, destination: string, error: Error): void {
  warn(
    'WASM_ROCE_NO_NEIGHBOUR',
    device,
    `packets of ${device} to ${destination} remain unacknowledged: ${error.message}`,
  );
}
