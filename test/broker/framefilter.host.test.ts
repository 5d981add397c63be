// The broker's end of the gate of a C program. The test plays the program.
import { once } from 'node:events';
import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FrameFilter } from '../../src/broker/control/framefilter.js';
import { MAX_FAULT_RULES } from '../../src/link/fault/options.js';
import { native } from '../../src/native.js';
import type { FaultOrder } from '../../src/probe/faults/rules.js';
import { encode } from '../../src/probe/packet/encode.js';
import { flowOf, frameOf, request } from '../../src/probe/packet/packets.js';
import { eventually } from '../kit/eventually.js';

const KIND = { received: 0, sent: 1, begin: 2, mark: 3, end: 4 };
const NOTHING = new Uint8Array(0);

const hits = new SharedArrayBuffer(8 * MAX_FAULT_RULES);
const order = (rule: string): FaultOrder => ({ id: 1, rule, seed: 1, slot: 0 });
const hitCount = () => new Float64Array(hits)[0];

const FLOW = flowOf({
  ...{ srcMac: '02:00:00:00:00:01', dstMac: '02:00:00:00:00:02' },
  ...{ srcIp: '10.0.0.1', dstIp: '10.0.0.2', destQp: 0x11 },
});
/** A SEND of one packet with a PSN. */
const packet = (psn: number): Uint8Array =>
  encode(frameOf(FLOW, request.sendOnly({ psn, payload: Buffer.from('text') })));

function record(kind: number, frame: Uint8Array = NOTHING, options = 0): Buffer {
  const head = Buffer.alloc(12);
  for (const [i, word] of [kind, options, frame.length].entries()) head.writeUInt32LE(word, 4 * i);
  return Buffer.concat([head, frame]);
}

/** A program: its end of the stream, and the records that have come. */
class PlayedProgram {
  readonly socket: Socket;
  readonly records: { readonly kind: number; readonly frame: Buffer }[] = [];
  #rest = Buffer.alloc(0);

  constructor(fd: number) {
    native().releaseFd(fd);
    this.socket = new Socket({ fd, readable: true, writable: true });
    this.socket.on('error', () => {});
    this.socket.on('data', (bytes: Buffer) => {
      this.#rest = Buffer.concat([this.#rest, bytes]);
      while (this.#rest.length >= 12 && this.#rest.length >= 12 + this.#rest.readUInt32LE(8)) {
        const end = 12 + this.#rest.readUInt32LE(8);
        this.records.push({ kind: this.#rest.readUInt32LE(0), frame: this.#rest.subarray(12, end) });
        this.#rest = this.#rest.subarray(end);
      }
    });
    this.socket.write(record(KIND.begin));
  }

  get kinds(): number[] {
    return this.records.map(({ kind }) => kind);
  }
}

let filter: FrameFilter;
let programs: PlayedProgram[];
beforeEach(() => {
  programs = [];
  filter = new FrameFilter((fd) => {
    programs.push(new PlayedProgram(native().dupFd(fd)));
    return true;
  });
});
afterEach(() => {
  filter.close();
  for (const { socket } of programs) socket.destroy();
});
const opened = async (...rules: string[]): Promise<PlayedProgram> => {
  await filter.setFaults(rules.map(order), hits);
  return programs.at(-1) as PlayedProgram;
};

test('frames come back in their order, without those that a rule drops, whatever pieces they arrive in', async () => {
  const program = await opened('drop the 2nd SEND');
  const frames = [1, 2, 3].map(packet);
  const bytes = Buffer.concat([...frames.map((frame) => record(KIND.sent, frame)), record(KIND.mark)]);
  for (let at = 0; at < bytes.length; at += 7) {
    program.socket.write(bytes.subarray(at, at + 7));
    if (at % 70 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  await eventually(() => expect(program.kinds).toEqual([KIND.sent, KIND.sent, KIND.mark]));
  expect(program.records[0]?.frame).toEqual(Buffer.from(frames[0] as Uint8Array));
  expect(program.records[1]?.frame).toEqual(Buffer.from(frames[2] as Uint8Array));
  expect(hitCount()).toBe(1);
});

test('the gate ends when no rule needs it: frames on their way come back before the end', async () => {
  const program = await opened('drop every ACK');
  await filter.setFaults([], hits);
  await eventually(() => expect(program.kinds).toEqual([KIND.end]));
  program.socket.write(Buffer.concat([record(KIND.received, packet(1)), record(KIND.end)]));
  await once(program.socket, 'close');
  expect(program.kinds).toEqual([KIND.end, KIND.received]);
  const next = await opened('drop every ACK');
  expect(next).not.toBe(program);
});

test('a frame that a rule delays comes back, although the rule has ended', async () => {
  const program = await opened('delay by 30ms every SEND received');
  program.socket.write(record(KIND.received, packet(1)));
  await eventually(() => expect(hitCount()).toBe(1));
  await filter.setFaults([], hits);
  expect(program.kinds).toEqual([]);
  await eventually(() => expect(program.kinds).toEqual([KIND.received, KIND.end]));
});

test.each([
  ['another kind', record(5)],
  ['a frame of 4 GiB', Buffer.concat([Buffer.alloc(8), Buffer.alloc(4, 255)])],
  ['a super-packet that is too short for its segments', record(KIND.received, new Uint8Array(9), 7 << 17)],
  ['a folded packet without headers', record(KIND.received, new Uint8Array(20), 0x8000)],
  ['a stream that is no record', Buffer.alloc(4096, 0x5a)],
])('a program that sends %s loses its gate, and nothing else happens', async (_, bytes) => {
  const program = await opened('drop every ACK');
  program.socket.write(bytes);
  program.socket.write(record(9));
  if (!program.socket.destroyed) await once(program.socket, 'close');
  expect(program.kinds.every((kind) => kind === KIND.received)).toBe(true);
});

test('setFaults rejects for a program that never takes its gate', async () => {
  const taken: number[] = [];
  filter = new FrameFilter((fd) => taken.push(native().dupFd(fd)) > 0);
  await expect(filter.setFaults([order('drop every ACK')], hits)).rejects.toThrow('does not send its frames');
  for (const fd of taken) native().closeFd(fd);
});

test('setFaults rejects for a program that ends before it has taken its gate', async () => {
  filter = new FrameFilter(() => true);
  await expect(filter.setFaults([order('drop every ACK')], hits)).rejects.toThrow('has ended');
});

test('setFaults rejects for a program that is not connected with the broker', async () => {
  filter = new FrameFilter(() => false);
  await expect(filter.setFaults([order('drop every ACK')], hits)).rejects.toThrow('is not connected with the broker');
});

test('the filter reads no more from a program that does not read', async () => {
  const program = await opened('drop every ACK');
  program.socket.pause();
  const frame = record(KIND.sent, packet(1));
  const many = Buffer.concat(Array.from({ length: 1000 }, () => frame));
  let written = 0;
  while (written < 400 && program.socket.writableLength < 4 * many.length) {
    program.socket.write(many);
    written++;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  expect(program.socket.writableLength).toBeGreaterThanOrEqual(4 * many.length);
  program.socket.resume();
  await eventually(() => expect(program.records).toHaveLength(written * 1000));
});
