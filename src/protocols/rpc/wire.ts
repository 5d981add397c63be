/**
 * Frames. A message of a connection has one frame or more, one after the other; all numbers are in network byte order:
 *
 *     byte 0   type                     bytes 4 to 7    number of the call
 *     byte 1   flags                    bytes 8 to 11   length of the body
 *     byte 2   length of the name       bytes 12 to 15  an argument
 *     byte 3   0                        then the name, and the body
 *
 * | type    | from   | body                          | argument                      |
 * |---------|--------|-------------------------------|-------------------------------|
 * | CALL    | client | the request; name: the method | time left in ms, 0: unlimited |
 * | OPEN    | client | none; name: the method        | time left in ms, 0: unlimited |
 * | RESULT  | server | the response                  |                               |
 * | FAIL    | server | JSON: code and details        |                               |
 * | MESSAGE | both   | a message of a stream         |                               |
 * | END     | both   | none: no more messages        |                               |
 * | CREDIT  | both   | none                          | messages that may follow      |
 * | CANCEL  | client | none                          |                               |
 * | RELEASE | both   | none                          | key of memory that was read   |
 *
 * With the flag LARGE the body says where the bytes are in the sender's memory: address (8 bytes), key (4), length (4).
 * The receiver reads them by RDMA READ, and sends RELEASE.
 */
import type { RemoteMemory } from '../../index.js';
import { checkPeerMemory, type PeerMemory } from '../../transport/peermemory.js';
import { RpcError } from './status.js';

export enum FrameType {
  CALL = 1,
  OPEN,
  RESULT,
  FAIL,
  MESSAGE,
  END,
  CREDIT,
  CANCEL,
  RELEASE,
}

/** The body says where the bytes are. */
export const LARGE = 1;

export const HEADER_BYTES = 16;
const LARGE_BYTES = 16;
const MAX_NAME_BYTES = 255;

/** Private data of both ends: name and version of the protocol. */
export const PROTOCOL = Buffer.from('wasm-roce/rpc 1');

export interface Frame {
  readonly type: FrameType;
  readonly flags: number;
  readonly call: number;
  readonly argument: number;
  /** The method, of CALL and OPEN. */
  readonly name: string;
  readonly body: Buffer;
}

/** The fields of a frame to write. Absent ones are 0 or empty. */
export type FrameInit = Pick<Frame, 'type' | 'call'> &
  Partial<Pick<Frame, 'flags' | 'argument' | 'name'>> & { readonly body?: Uint8Array };

const NOTHING = new Uint8Array(0);

/** Returns the bytes of a frame. */
export function frameBytes({ name = '', body = NOTHING }: FrameInit): number {
  return HEADER_BYTES + Buffer.byteLength(name) + body.length;
}

/** Writes a frame. @returns the offset after it */
export function writeFrame(into: Buffer, at: number, frame: FrameInit): number {
  const { type, call, flags = 0, argument = 0, name = '', body = NOTHING } = frame;
  const nameBytes = into.write(name, at + HEADER_BYTES);
  into.writeUInt8(type, at);
  into.writeUInt8(flags, at + 1);
  into.writeUInt8(nameBytes, at + 2);
  into.writeUInt8(0, at + 3);
  into.writeUInt32BE(call, at + 4);
  into.writeUInt32BE(body.length, at + 8);
  into.writeUInt32BE(argument, at + 12);
  into.set(body, at + HEADER_BYTES + nameBytes);
  return at + HEADER_BYTES + nameBytes + body.length;
}

const broken = (why: string) => new Error(why);

/** Reads the frames of a message. @throws Error when they do not fill it exactly, or name memory without addresses */
export function* readFrames(message: Buffer): Generator<Frame> {
  for (let at = 0; at < message.length; ) {
    if (message.length - at < HEADER_BYTES) throw new Error(`a frame has ${message.length - at} bytes of its header`);
    const [type, nameBytes, bodyBytes] = [
      message[at] as number,
      message[at + 2] as number,
      message.readUInt32BE(at + 8),
    ];
    const [nameAt, end] = [at + HEADER_BYTES, at + HEADER_BYTES + nameBytes + bodyBytes];
    if (end > message.length) throw new Error(`a frame has ${end - at} bytes, its message ${message.length - at}`);
    const flags = message[at + 1] as number;
    const body = message.subarray(nameAt + nameBytes, end);
    if ((flags & LARGE) !== 0) {
      if (bodyBytes !== LARGE_BYTES) throw broken(`a body in memory has ${bodyBytes} bytes, must have ${LARGE_BYTES}`);
      checkPeerMemory('a body in memory', decodeLarge(body), broken);
    }
    yield {
      type,
      flags,
      call: message.readUInt32BE(at + 4),
      argument: message.readUInt32BE(at + 12),
      name: nameBytes === 0 ? '' : message.toString('utf8', nameAt, nameAt + nameBytes),
      body,
    };
    at = end;
  }
}

export function encodeLarge({ addr, rkey, length }: RemoteMemory): Buffer {
  const body = Buffer.alloc(LARGE_BYTES);
  body.writeBigUInt64BE(BigInt(addr), 0);
  body.writeUInt32BE(rkey, 8);
  body.writeUInt32BE(length, 12);
  return body;
}

/** @param body of a frame with the flag LARGE */
export function decodeLarge(body: Buffer): PeerMemory {
  return { addr: body.readBigUInt64BE(0), rkey: body.readUInt32BE(8), length: body.readUInt32BE(12) };
}

export function encodeStatus({ code, details }: RpcError): Buffer {
  return Buffer.from(JSON.stringify({ code, details: details.slice(0, 1000) }));
}

export function decodeStatus(body: Buffer): RpcError {
  try {
    const { code, details } = JSON.parse(body.toString()) as { code: unknown; details: unknown };
    if (typeof code === 'string' && typeof details === 'string') return new RpcError(code, details);
  } catch {
    // no JSON
  }
  return new RpcError('INTERNAL', 'the server has sent an invalid error');
}

/** @throws TypeError unless a method can have the name */
export function checkMethodName(name: string): void {
  if (typeof name !== 'string' || name === '' || Buffer.byteLength(name) > MAX_NAME_BYTES)
    throw new TypeError(`the method is ${JSON.stringify(name)}, must be a name of 1 to ${MAX_NAME_BYTES} bytes`);
}
