/**
 * The answers of queue pair 1 to ComMgtGet and ComMgtSet (IBTA 16.7.2): its ClassPortInfo, which has the features of
 * this communication manager (IBTA 13.4.8.1, 16.7.3.1), and for everything else a status.
 */
import { uint, writeFields } from './fields.js';
import { CONSTANT, HEADER, HEADER_BYTES, MAD_BYTES, readHeader } from './mad.js';
import { RESPONSE_TIMEOUT } from './times.js';

const Method = { GET: 0x01, SET: 0x02, GET_RESP: 0x81 } as const;
const CLASS_PORT_INFO = 0x0001;

/** Status of a MAD (IBTA 13.4.7). */
const Status = { OK: 0, BAD_VERSION: 0x04, NOT_SUPPORTED: 0x0c } as const;

/** Capabilities of a communication manager (IBTA 16.7.3.1). */
const Capability = { RC: 1 << 9, UC: 1 << 12, SIDR: 1 << 13 } as const;

/** The fields that are not zero: there is no redirection, and there are no traps. */
const LAYOUT = {
  baseVersion: uint(0, 8),
  classVersion: uint(1, 8),
  capabilityMask: uint(2, 16),
  /** 27 bits of CapabilityMask2, and 5 of RespTimeValue: 4.096 us * 2^t. */
  responseTime: uint(4, 32),
};

/** Returns the reply to a ComMgtGet or ComMgtSet, or undefined when a datagram is neither. Never throws. */
export function replyToGet(bytes: Uint8Array): Uint8Array | undefined {
  if (bytes.length !== MAD_BYTES) return undefined;
  const header = readHeader(bytes);
  const { baseVersion, managementClass, classVersion, method, attribute } = header;
  if (baseVersion !== CONSTANT.baseVersion || managementClass !== CONSTANT.managementClass) return undefined;
  if (method !== Method.GET && method !== Method.SET) return undefined;
  const isKnown = method === Method.GET && attribute === CLASS_PORT_INFO;
  const status =
    classVersion !== CONSTANT.classVersion ? Status.BAD_VERSION : isKnown ? Status.OK : Status.NOT_SUPPORTED;
  const reply = new Uint8Array(MAD_BYTES);
  writeFields(HEADER, new DataView(reply.buffer), { ...header, ...CONSTANT, method: Method.GET_RESP, status });
  if (status === Status.OK)
    writeFields(LAYOUT, new DataView(reply.buffer, HEADER_BYTES), {
      baseVersion: CONSTANT.baseVersion,
      classVersion: CONSTANT.classVersion,
      capabilityMask: Capability.RC | Capability.UC | Capability.SIDR,
      responseTime: RESPONSE_TIMEOUT,
    });
  return reply;
}
