/** The 36-byte header that rdma_cm puts before the private data of REQ and SIDR_REQ (IBTA annex A11). */

import { ipBytes, ipText, ipv4Text } from '../../base/address.js';
import { octets, readFields, uint, writeFields } from './fields.js';

export const CMA_HDR_BYTES = 36;

const LAYOUT = {
  version: uint(0, 8),
  ipVersion: uint(1, 4),
  sourcePort: uint(2, 16),
  /** An IPv4 address occupies the last four of the sixteen bytes. */
  source: octets(4, 16),
  destination: octets(20, 16),
};

export interface CmaHdr {
  /** IP addresses as text, of one family. */
  readonly source: string;
  readonly destination: string;
  /** Port of the client. The low 16 bits of the service id are the port of the server. */
  readonly sourcePort: number;
}

/** Parses the header. @param data private data, at least 36 bytes @returns undefined for an unknown version */
export function parseCmaHdr(data: Uint8Array): CmaHdr | undefined {
  const fields = readFields(LAYOUT, new DataView(data.buffer, data.byteOffset, data.length));
  const { version, ipVersion, sourcePort } = fields;
  if (version !== 0 || (ipVersion !== 4 && ipVersion !== 6)) return undefined;
  const text = (bytes: Uint8Array) => (ipVersion === 4 ? ipv4Text(bytes, 12) : ipText(bytes));
  return { source: text(fields.source), destination: text(fields.destination), sourcePort };
}

/** Returns private data with the header before it. @throws TypeError for an invalid address; RangeError for the port */
export function withCmaHdr({ source, destination, sourcePort }: CmaHdr, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(CMA_HDR_BYTES + data.length);
  writeFields(LAYOUT, new DataView(bytes.buffer), {
    version: 0,
    ipVersion: ipBytes(source).length === 4 ? 4 : 6,
    sourcePort,
    source: padded(source),
    destination: padded(destination),
  });
  bytes.set(data, CMA_HDR_BYTES);
  return bytes;
}

function padded(address: string): Uint8Array {
  const ip = ipBytes(address);
  const field = new Uint8Array(16);
  field.set(ip, 16 - ip.length);
  return field;
}
