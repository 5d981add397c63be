/** The data structures of Identify (NVM Express base specification, "Identify command"; Fabrics fields included). */

import { COMMAND_BYTES, IDENTIFY_BYTES, RESPONSE_BYTES } from '../wire.js';
import { MAX_ASYNC_EVENTS } from './events.js';
import { MAX_TRANSFER_LOG2, type Namespace } from './namespace.js';

/** Unit of the keep-alive timer in ms (KAS, in units of 100 ms). */
const KEEP_ALIVE_UNITS = 10;

/** What Identify Controller says of a controller. */
export interface ControllerIdentity {
  readonly cntlid: number;
  readonly nqn: string;
  readonly serialNumber: string;
  readonly isDiscovery: boolean;
  /** Highest id that a namespace may have. */
  readonly maxNsid: number;
  /** Commands that a queue takes. */
  readonly queueEntries: number;
  /** Bytes of data that a command on an I/O queue may carry. */
  readonly capsuleDataBytes: number;
  /** Bits of the asynchronous events that the controller reports (OAES). */
  readonly asyncEvents: number;
}

const VERSION = '0.1.0';

export function identifyController(identity: ControllerIdentity): Buffer {
  const data = Buffer.alloc(IDENTIFY_BYTES);
  data.fill(' ', 4, 72);
  data.write(identity.serialNumber.slice(0, 20), 4, 'latin1');
  data.write('wasm-roce', 24, 'latin1');
  data.write(VERSION, 64, 'latin1');
  data[76] = 0x03; // CMIC: several ports and controllers
  data[77] = MAX_TRANSFER_LOG2;
  data.writeUInt16LE(identity.cntlid, 78);
  data.writeUInt32LE(0x00010300, 80); // VER
  data.writeUInt32LE(identity.asyncEvents, 92);
  data.writeUInt32LE(1 << 6, 96); // CTRATT: every command counts as a keep-alive (TBKAS)
  data[111] = identity.isDiscovery ? 2 : 1; // CNTRLTYPE
  data[258] = 3; // ACL
  data[259] = MAX_ASYNC_EVENTS - 1; // AERL
  data[261] = 1 << 2; // LPA: offsets and long log pages
  data.writeUInt16LE(KEEP_ALIVE_UNITS, 320);
  data[512] = 0x66; // SQES: 64 bytes
  data[513] = 0x44; // CQES: 16 bytes
  data.writeUInt16LE(identity.queueEntries, 514);
  data.writeUInt32LE(identity.maxNsid, 516);
  data.writeUInt16LE((1 << 0) | (1 << 2) | (1 << 3), 520); // ONCS: Compare, Dataset Management, Write Zeroes
  data[525] = 1; // VWC: what is written is durable after Flush
  data.writeUInt32LE((1 << 0) | (1 << 2) | (1 << 20), 536); // SGLS: SGLs, keyed, offsets in the capsule
  data.write(identity.nqn, 768, 'utf8');
  data.writeUInt32LE((COMMAND_BYTES + identity.capsuleDataBytes) / 16, 1792); // IOCCSZ
  data.writeUInt32LE(RESPONSE_BYTES / 16, 1796); // IORCSZ
  data[1803] = 1; // MSDBD: one descriptor
  return data;
}

/** @param namespace undefined: an id that no namespace has */
export function identifyNamespace(namespace: Namespace | undefined): Buffer {
  const data = Buffer.alloc(IDENTIFY_BYTES);
  if (namespace === undefined) return data;
  const { blocks, blockBytes, isReadOnly, uuid } = namespace;
  for (const at of [0, 8, 16]) data.writeBigUInt64LE(BigInt(blocks), at); // NSZE, NCAP, NUSE
  data[30] = 1; // NMIC: several controllers may have it
  data[99] = isReadOnly ? 1 : 0; // NSATTR
  uuid.copy(data, 104); // NGUID
  data[130] = Math.log2(blockBytes); // LBADS of the only format
  return data;
}

/** Ids of the namespaces above `nsid`, as many as fit. */
export function identifyNamespaceList(ids: readonly number[], nsid: number): Buffer {
  const data = Buffer.alloc(IDENTIFY_BYTES);
  const above = ids.filter((id) => id > nsid).sort((a, b) => a - b);
  for (const [i, id] of above.slice(0, IDENTIFY_BYTES / 4).entries()) data.writeUInt32LE(id, 4 * i);
  return data;
}

/** Types of identification descriptors. */
enum DescriptorType {
  NGUID = 2,
  UUID = 3,
  COMMAND_SET = 4,
}

export function identifyDescriptors({ uuid }: Namespace): Buffer {
  const data = Buffer.alloc(IDENTIFY_BYTES);
  let at = 0;
  const add = (type: DescriptorType, value: Buffer) => {
    data[at] = type;
    data[at + 1] = value.length;
    value.copy(data, at + 4);
    at += 4 + value.length;
  };
  add(DescriptorType.NGUID, uuid);
  add(DescriptorType.UUID, uuid);
  add(DescriptorType.COMMAND_SET, Buffer.alloc(1));
  return data;
}
