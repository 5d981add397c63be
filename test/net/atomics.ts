/** Operands of the simulation's atomics, and their effect on the model's memory. */
import { isAtomic, type Op } from './op.js';
import type { Side } from './side.js';

/** Half of the compare operands match. */
export function operands(op: Op, to: Side, offset: number): { compareAdd: bigint; swap: bigint } {
  if (offset === to.shared) return { compareAdd: 1n, swap: 0n };
  const value = BigInt(op.imm) * 0x9e3779b97f4a7c15n;
  if (op.kind === 'ATOMIC_FETCH_AND_ADD') return { compareAdd: BigInt.asUintN(64, value), swap: 0n };
  const found = to.view.getBigUint64(offset, true);
  return { compareAdd: op.imm & 64 ? found : found ^ 1n, swap: BigInt.asUintN(64, value) };
}

/** Returns the original value in the byte order of memory; undefined for the word that all streams share. */
export function apply(op: Op, to: Side, offset: number): Buffer | undefined {
  if (!isAtomic(op.kind)) return undefined;
  const { view } = to;
  const original = view.getBigUint64(offset, true);
  const { compareAdd, swap } = operands(op, to, offset);
  if (op.kind === 'ATOMIC_FETCH_AND_ADD') view.setBigUint64(offset, BigInt.asUintN(64, original + compareAdd), true);
  else if (original === compareAdd) view.setBigUint64(offset, swap, true);
  if (offset === to.shared) return undefined;
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(original);
  return bytes;
}
