/** A frame in one line, for failure messages. */
import { decode, isRoce } from './decode.js';
import type { Decoded } from './frame.js';
import { OPCODES } from './opcodes.js';

const hex = (value: number | bigint) => `0x${value.toString(16)}`;

function syndrome(value: number): string {
  const code = value & 0x1f;
  if (value >>> 5 === 0) return code === 0x1f ? 'ACK' : `ACK credits ${code}`;
  if (value >>> 5 === 1) return `RNR timer ${code}`;
  if (value >>> 5 !== 3) return `reserved ${hex(value)}`;
  return `NAK ${['sequence', 'invalid request', 'remote access', 'remote operational', 'invalid RD'][code] ?? code}`;
}

function extensions(d: Decoded): string[] {
  const words: string[] = [];
  if (d.deth) words.push(`from qp ${hex(d.deth.srcQp)} qkey ${hex(d.deth.qkey)}`);
  if (d.feth) words.push(`placement ${d.feth.placement} selectivity ${d.feth.selectivity}`);
  if (d.reth) words.push(`va ${hex(d.reth.va)} rkey ${hex(d.reth.rkey)} length ${d.reth.length}`);
  if (d.atomiceth) {
    const { va, rkey, swapAdd, compare } = d.atomiceth;
    words.push(`va ${hex(va)} rkey ${hex(rkey)} swap/add ${hex(swapAdd)} compare ${hex(compare)}`);
  }
  if (d.aeth) words.push(`${syndrome(d.aeth.syndrome)} msn ${d.aeth.msn}`);
  if (d.immdt !== undefined) words.push(`imm ${hex(d.immdt)}`);
  if (d.ieth !== undefined) words.push(`invalidate ${hex(d.ieth)}`);
  if (d.atomicack !== undefined) words.push(`original ${hex(d.atomicack)}`);
  return words;
}

/** Addresses, operation, queue pair, PSN, headers, length, and whether the ICRC is right. Never throws. */
export function describe(bytes: Uint8Array): string {
  if (!isRoce(bytes)) return `${bytes.length} bytes, not RoCEv2`;
  let d: Decoded;
  try {
    d = decode(bytes);
  } catch (cause) {
    return `${bytes.length} bytes, broken: ${(cause as Error).message}`;
  }
  const flags = [d.bth.ackReq && 'ackReq', d.bth.solicited && 'solicited', d.bth.fecn && 'fecn', d.bth.becn && 'becn'];
  return [
    `${d.ip.src} > ${d.ip.dst}`,
    `${OPCODES.get(d.bth.opcode)?.name ?? `opcode ${hex(d.bth.opcode)}`} qp ${hex(d.bth.destQp)} psn ${d.bth.psn}`,
    ...flags.filter((flag) => flag !== false),
    ...extensions(d),
    `${d.payload.length} bytes${d.bth.pad ? ` + ${d.bth.pad} pad` : ''}`,
    d.icrcOk ? 'icrc ok' : `icrc ${hex(d.icrc)} should be ${hex(d.icrcExpected)}`,
  ].join(', ');
}
