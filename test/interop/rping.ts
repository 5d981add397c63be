/** Our implementation of both ends of rping: the messages and operations of each ping. */
import { expect } from 'vitest';
import type { CmEnd } from './cm-end.js';

/** Bytes of each message. */
export const MESSAGE = 16;
/** Offset of received messages. One receive must be posted there before connecting. */
export const INBOX = 0;
const [OUTBOX, DATA, BACK] = [64, 1024, 2048];
/** Bytes of the text. */
const LENGTH = 64;

/** The client: advertises memory to read and memory to write, and expects the same text in both at the end. */
export async function ping(end: CmEnd, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    end.mr.buffer.fill(0, DATA, DATA + LENGTH);
    end.mr.buffer.write(`rdma-ping-${n}: ABCDEFGHIJKLMNOPQRSTUVWXYZ`, DATA);
    for (const offset of [DATA, BACK]) {
      advertise(end, offset);
      end.send(OUTBOX, MESSAGE);
      await end.completions(2);
      end.receive(INBOX, MESSAGE);
    }
    const text = (at: number) => end.mr.buffer.toString('utf8', at, end.mr.buffer.indexOf(0, at));
    expect(text(BACK)).toBe(text(DATA));
  }
}

/**
 * The server. The client disconnects once it has the last message. Its DREQ may arrive before the ACK, so the client's
 * output, not the completion, confirms the last message.
 */
export async function pong(end: CmEnd, count: number): Promise<void> {
  for (let n = 0; n < count; n++)
    for (const opcode of ['RDMA_READ', 'RDMA_WRITE'] as const) {
      await end.completion();
      const remoteAddr = end.mr.buffer.readBigUInt64BE(INBOX);
      const [rkey, length] = [end.mr.buffer.readUInt32BE(INBOX + 8), end.mr.buffer.readUInt32BE(INBOX + 12)];
      end.receive(INBOX, MESSAGE);
      end.qp.postSend({ opcode, sgList: end.mr.sge(DATA, length), remoteAddr, rkey });
      await end.completion();
      end.send(OUTBOX, MESSAGE);
      const isLast = n === count - 1 && opcode === 'RDMA_WRITE';
      if (!isLast) await end.completion();
    }
}

/** Writes the message that advertises a buffer. */
function advertise({ mr }: CmEnd, offset: number): void {
  mr.buffer.writeBigUInt64BE(BigInt(mr.addr + offset), OUTBOX);
  mr.buffer.writeUInt32BE(mr.rkey, OUTBOX + 8);
  mr.buffer.writeUInt32BE(LENGTH, OUTBOX + 12);
}
