/** The discovery log: which subsystems a target has, and where (NVMe over Fabrics, "Discovery Log Page"). */
import { isIPv6 } from 'node:net';
import { ADMIN_ENTRIES, DISCOVERY_NQN } from './wire.js';

/** Bytes of the head of the log, and of a record. */
export const DISCOVERY_RECORD_BYTES = 1024;

/** A subsystem, and where it is reached. */
export interface DiscoveryEntry {
  /** Its NVMe qualified name. */
  readonly nqn: string;
  /** IP address. */
  readonly address: string;
  /** Port of rdma_cm. */
  readonly port: number;
}

/** @param generation changes when the entries do */
export function discoveryLog(entries: readonly DiscoveryEntry[], generation: number): Buffer {
  const data = Buffer.alloc((1 + entries.length) * DISCOVERY_RECORD_BYTES);
  data.writeBigUInt64LE(BigInt(generation), 0);
  data.writeBigUInt64LE(BigInt(entries.length), 8);
  for (const [i, entry] of entries.entries()) writeRecord(data.subarray((1 + i) * DISCOVERY_RECORD_BYTES), entry);
  return data;
}

function writeRecord(record: Buffer, { nqn, address, port }: DiscoveryEntry): void {
  record[0] = 1; // TRTYPE: RDMA
  record[1] = isIPv6(address) ? 2 : 1; // ADRFAM
  record[2] = nqn === DISCOVERY_NQN ? 3 : 2; // SUBTYPE
  record.writeUInt16LE(1, 4); // PORTID
  record.writeUInt16LE(0xffff, 6); // CNTLID: any
  record.writeUInt16LE(ADMIN_ENTRIES, 8);
  record.write(String(port), 32, 'latin1');
  record.write(nqn, 256, 'utf8');
  record.write(address, 512, 'latin1');
  record[768] = 1; // QPTYPE: RC
  record[769] = 4; // PRTYPE: RoCEv2
  record[770] = 1; // CMS: rdma_cm
}

/** The head of the log: the number of records, and the edition of the log that they are of. */
export function decodeDiscoveryHead(head: Buffer): { readonly generation: bigint; readonly records: number } {
  return { generation: head.readBigUInt64LE(0), records: Number(head.readBigUInt64LE(8)) };
}

/** @returns undefined for a record of another transport than RDMA */
export function decodeDiscoveryRecord(record: Buffer): DiscoveryEntry | undefined {
  if (record[0] !== 1) return undefined;
  return {
    nqn: textOf(record, 256, 512),
    address: textOf(record, 512, 768),
    port: Number(textOf(record, 32, 64)),
  };
}

/** A text that is padded with zeroes or spaces. */
function textOf(record: Buffer, begin: number, end: number): string {
  const field = record.subarray(begin, end);
  const length = field.indexOf(0);
  return field.toString('utf8', 0, length < 0 ? undefined : length).trimEnd();
}
