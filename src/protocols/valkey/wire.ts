/** Messages of Valkey Over RDMA: SENDs of 32 bytes, in network byte order. */
import { VerbsError } from '../../index.js';
import { checkPeerMemory, type PeerMemory } from '../../transport/peermemory.js';

/** Bytes of each message. */
export const MESSAGE_BYTES = 32;

/** The kind of a message: its first 16 bits. */
export enum Opcode {
  GET_SERVER_FEATURE = 0,
  SET_CLIENT_FEATURE = 1,
  KEEPALIVE = 2,
  REGISTER_XFER_MEMORY = 3,
}

/** A message; the reserved bytes of all are zeroes when sent, and ignored when received. */
export type Message =
  | { readonly opcode: Opcode.GET_SERVER_FEATURE; readonly select: number; readonly features: bigint }
  | { readonly opcode: Opcode.SET_CLIENT_FEATURE; readonly select: number; readonly features: bigint }
  | { readonly opcode: Opcode.KEEPALIVE }
  | { readonly opcode: Opcode.REGISTER_XFER_MEMORY; readonly memory: PeerMemory };

export function encodeMessage(message: Message): Uint8Array {
  const view = new DataView(new ArrayBuffer(MESSAGE_BYTES));
  view.setUint16(0, message.opcode);
  if ('features' in message) {
    view.setUint16(2, message.select);
    view.setBigUint64(24, message.features);
  } else if ('memory' in message) {
    view.setBigUint64(16, message.memory.addr);
    view.setUint32(24, message.memory.length);
    view.setUint32(28, message.memory.rkey);
  }
  return new Uint8Array(view.buffer);
}

/** @throws VerbsError EIO for another length or opcode, or memory without addresses */
export function decodeMessage(bytes: Uint8Array): Message {
  if (bytes.length !== MESSAGE_BYTES) throw broken(`its message has ${bytes.length} bytes, must have ${MESSAGE_BYTES}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, MESSAGE_BYTES);
  const opcode = view.getUint16(0);
  switch (opcode) {
    case Opcode.GET_SERVER_FEATURE:
    case Opcode.SET_CLIENT_FEATURE:
      return { opcode, select: view.getUint16(2), features: view.getBigUint64(24) };
    case Opcode.KEEPALIVE:
      return { opcode };
    case Opcode.REGISTER_XFER_MEMORY:
      return { opcode, memory: checkPeerMemory('its buffer', readMemory(view), broken) };
  }
  throw broken(`its message has the opcode ${opcode}`);
}

function readMemory(view: DataView): PeerMemory {
  return { addr: view.getBigUint64(16), length: view.getUint32(24), rkey: view.getUint32(28) };
}

/** An error of a peer that does not keep to the protocol. */
export const broken = (why: string) =>
  new VerbsError('EIO', `the peer does not keep to the protocol of Valkey Over RDMA: ${why}`);
