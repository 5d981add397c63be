/** Describes a frame in one line, for failure messages. */
import { decode, isRoce } from './decode.js';
import type { Decoded } from './frame.js';
import { numberHex } from './hex.js';
import { decodeMad, madText } from './mad.js';
import { OPCODES } from './opcodes.js';

function syndrome(value: number): string {
  const code = value & 0x1f;
  if (value >>> 5 === 0) return code === 0x1f ? 'ACK' : `ACK credits ${code}`;
  if (value >>> 5 === 1) return `RNR timer ${code}`;
  if (value >>> 5 !== 3) return `reserved ${numberHex(value)}`;
  return `NAK ${['sequence', 'invalid request', 'remote access', 'remote operational', 'invalid RD'][code] ?? code}`;
}

function extensions(d: Decoded): string[] {
  const words: string[] = [];
  if (d.deth) words.push(`from qp ${numberHex(d.deth.srcQp)} qkey ${numberHex(d.deth.qkey)}`);
  if (d.feth) words.push(`placement ${d.feth.placement} selectivity ${d.feth.selectivity}`);
  if (d.reth) words.push(`va ${numberHex(d.reth.va)} rkey ${numberHex(d.reth.rkey)} length ${d.reth.length}`);
  if (d.atomiceth) {
    const { va, rkey, swapAdd, compare } = d.atomiceth;
    words.push(
      `va ${numberHex(va)} rkey ${numberHex(rkey)} swap/add ${numberHex(swapAdd)} compare ${numberHex(compare)}`,
    );
  }
  if (d.aeth) words.push(`${syndrome(d.aeth.syndrome)} msn ${d.aeth.msn}`);
  if (d.immdt !== undefined) words.push(`imm ${numberHex(d.immdt)}`);
  if (d.ieth !== undefined) words.push(`invalidate ${numberHex(d.ieth)}`);
  const mad = d.bth.destQp === 1 ? decodeMad(d.payload) : undefined;
  if (mad !== undefined) words.push(madText(mad));
  if (d.atomicack !== undefined) words.push(`original ${numberHex(d.atomicack)}`);
  return words;
}

/** Returns addresses, operation, queue pair, PSN, headers, length, and whether the ICRC is right. Never throws. */
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
    `${OPCODES.get(d.bth.opcode)?.name ?? `opcode ${numberHex(d.bth.opcode)}`} qp ${numberHex(d.bth.destQp)} psn ${d.bth.psn}`,
    ...flags.filter((flag) => flag !== false),
    ...extensions(d),
    `${d.payload.length} bytes${d.bth.pad ? ` + ${d.bth.pad} pad` : ''}`,
    d.icrcOk ? 'icrc ok' : `icrc ${numberHex(d.icrc)} should be ${numberHex(d.icrcExpected)}`,
  ].join(', ');
}
