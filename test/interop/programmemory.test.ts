// A large Buffer of this program, which rxe reads. The card's memory holds nothing of it.
import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { OurDevice } from './card.js';
import { corners, describeWithRxe } from './environment.js';
import { Peer, patternBytes } from './guest/peer.js';
import { connectPair, FAMILIES } from './pair.js';

const SIZE = 2 ** 31;
/** Bytes of rxe's region, which it fills by four READs. */
const PART = 2 ** 23;
const READS = 4;
/** Memory that this process may need more than before, besides what it has filled of the Buffer (bytes). */
const SPARE = 96 * 2 ** 20;

/** All parts, or every 16th in `npm test`. */
const parts = corners(
  Array.from({ length: SIZE / PART }, (_, part) => part),
  (part) => part % 16 === 15,
);

describeWithRxe('memory of the program with rxe', 9000, (environment) => {
  test.each(['inline', 'worker'] as const)(
    'rxe reads a Buffer of 2 GiB, mode %s, and memory stays flat',
    async (mode) => {
      await using ours = await OurDevice.open('packet', { mode, memory: 'program', memoryBytes: 16 * 2 ** 20 });
      await using peer = await Peer.start(environment.guest, FAMILIES.IPv4.gid);
      const ends = { card: { size: SIZE }, rxe: { size: PART } };
      await using pair = await connectPair({ ours, peer, family: 'IPv4' }, { mtu: 4096 }, ends);
      const { card, rxe } = pair;
      const pattern = Buffer.from(patternBytes(PART, 1));
      const before = process.memoryUsage().rss;
      for (const part of parts) {
        const bytes = card.mr.buffer.subarray(part * PART, (part + 1) * PART);
        pattern.copy(bytes);
        bytes.writeUInt32LE(part);
        for (let id = 0; id < READS; id++) {
          const length = PART / READS;
          await rxe.postSend({ op: 'read', id, pieces: [[id * length, length]], offset: part * PART + id * length });
        }
        expect(await rxe.completions(READS)).toMatchObject(
          [0, 1, 2, 3].map((id) => ({ id, status: WcStatus.SUCCESS })),
        );
        expect(await rxe.crc(), `part ${part}`).toBe(crc32(bytes));
      }
      expect(process.memoryUsage().rss - before).toBeLessThan(parts.length * PART + SPARE);
    },
  );
});
