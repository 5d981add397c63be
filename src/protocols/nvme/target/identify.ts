/** The data structures of Identify, as a target fills them. */

import { CONTROLLER, FORMAT, NAMESPACE, ONCS, SGLS } from '../structures.js';
import { COMMAND_BYTES, IDENTIFY_BYTES, RESPONSE_BYTES } from '../wire.js';
import { MAX_ASYNC_EVENTS } from './events.js';
import { MAX_TRANSFER_LOG2, type Namespace } from './namespace.js';

/** Unit of the keep-alive timer in ms (KAS, in units of 100 ms). */
const KEEP_ALIVE_UNITS = 10;

/** The properties of a controller in Identify Controller. */
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
  data.fill(' ', CONTROLLER.SN, CONTROLLER.FR + 8);
  data.write(identity.serialNumber.slice(0, 20), CONTROLLER.SN, 'latin1');
  data.write('wasm-roce', CONTROLLER.MN, 'latin1');
  data.write(VERSION, CONTROLLER.FR, 'latin1');
  data[CONTROLLER.CMIC] = 0x03; // several ports and controllers
  data[CONTROLLER.MDTS] = MAX_TRANSFER_LOG2;
  data.writeUInt16LE(identity.cntlid, CONTROLLER.CNTLID);
  data.writeUInt32LE(0x00010300, CONTROLLER.VER);
  data.writeUInt32LE(identity.asyncEvents, CONTROLLER.OAES);
  data.writeUInt32LE(1 << 6, CONTROLLER.CTRATT); // every command counts as a keep-alive (TBKAS)
  data[CONTROLLER.CNTRLTYPE] = identity.isDiscovery ? 2 : 1;
  data[CONTROLLER.ACL] = 3;
  data[CONTROLLER.AERL] = MAX_ASYNC_EVENTS - 1;
  data[CONTROLLER.LPA] = 1 << 2; // offsets and long log pages
  data.writeUInt16LE(KEEP_ALIVE_UNITS, CONTROLLER.KAS);
  data[CONTROLLER.SQES] = 0x66; // 64 bytes
  data[CONTROLLER.CQES] = 0x44; // 16 bytes
  data.writeUInt16LE(identity.queueEntries, CONTROLLER.MAXCMD);
  data.writeUInt32LE(identity.maxNsid, CONTROLLER.NN);
  data.writeUInt16LE(ONCS.COMPARE | ONCS.DATASET_MANAGEMENT | ONCS.WRITE_ZEROES, CONTROLLER.ONCS);
  data[CONTROLLER.VWC] = 1; // what is written is durable after Flush
  data.writeUInt32LE(SGLS.SUPPORTED | SGLS.KEYED | SGLS.OFFSETS, CONTROLLER.SGLS);
  data.write(identity.nqn, CONTROLLER.SUBNQN, 'utf8');
  data.writeUInt32LE((COMMAND_BYTES + identity.capsuleDataBytes) / 16, CONTROLLER.IOCCSZ);
  data.writeUInt32LE(RESPONSE_BYTES / 16, CONTROLLER.IORCSZ);
  data[CONTROLLER.MSDBD] = 1;
  return data;
}

/** @param namespace undefined: an id that no namespace has */
export function identifyNamespace(namespace: Namespace | undefined): Buffer {
  const data = Buffer.alloc(IDENTIFY_BYTES);
  if (namespace === undefined) return data;
  const { blocks, blockBytes, isReadOnly, uuid } = namespace;
  for (const at of [NAMESPACE.NSZE, NAMESPACE.NCAP, NAMESPACE.NUSE]) data.writeBigUInt64LE(BigInt(blocks), at);
  data[NAMESPACE.NMIC] = 1;
  data[NAMESPACE.NSATTR] = isReadOnly ? 1 : 0;
  uuid.copy(data, NAMESPACE.NGUID);
  data[NAMESPACE.LBAF + FORMAT.LBADS] = Math.log2(blockBytes); // of the only format
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
