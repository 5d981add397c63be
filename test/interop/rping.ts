/** Both ends of rping as programs of ours: what they say and do for each ping. */
import { expect } from 'vitest';
import type { Side } from './side.js';

/** Bytes of each message. */
export const MESSAGE = 16;
/** Where messages arrive; one receive has to be posted there before connecting. */
export const INBOX = 0;
const [OUTBOX, DATA, BACK] = [64, 1024, 2048];
/** Of the text. */
const LENGTH = 64;

/** The client: what is to be read, what may be written, and both must be the same in the end. */
export async function ping(side: Side, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    side.mr.buffer.fill(0, DATA, DATA + LENGTH);
    side.mr.buffer.write(`rdma-ping-${n}: ABCDEFGHIJKLMNOPQRSTUVWXYZ`, DATA);
    for (const offset of [DATA, BACK]) {
      advertise(side, offset);
      side.send(OUTBOX, MESSAGE);
      await side.completions(2);
      side.receive(INBOX, MESSAGE);
    }
    const text = (at: number) => side.mr.buffer.toString('utf8', at, side.mr.buffer.indexOf(0, at));
    expect(text(BACK)).toBe(text(DATA));
  }
}

/**
 * The server. The client leaves once it has the last message: its farewell may come before the ACK, so how that message
 * ended is for the client's output to say.
 */
export async function pong(side: Side, count: number): Promise<void> {
  for (let n = 0; n < count; n++)
    for (const opcode of ['RDMA_READ', 'RDMA_WRITE'] as const) {
      await side.completion();
      const remoteAddr = side.mr.buffer.readBigUInt64BE(INBOX);
      const [rkey, length] = [side.mr.buffer.readUInt32BE(INBOX + 8), side.mr.buffer.readUInt32BE(INBOX + 12)];
      side.receive(INBOX, MESSAGE);
      side.qp.postSend({ opcode, sgList: side.mr.slice(DATA, length), remoteAddr, rkey });
      await side.completion();
      side.send(OUTBOX, MESSAGE);
      const isLast = n === count - 1 && opcode === 'RDMA_WRITE';
      if (!isLast) await side.completion();
    }
}

/** The message: where a buffer is. */
function advertise({ mr }: Side, offset: number): void {
  mr.buffer.writeBigUInt64BE(BigInt(mr.addr + offset), OUTBOX);
  mr.buffer.writeUInt32BE(mr.rkey, OUTBOX + 8);
  mr.buffer.writeUInt32BE(LENGTH, OUTBOX + 12);
}
