/**
 * Damaged messages, noise, and messages with random fields, in every state. Nothing throws, every datagram is counted,
 * and no connection is left at the end.
 *   WASM_ROCE_SEED=n   another seed     WASM_ROCE_SCALE=x  x times as many
 */
import { expect, describe as group, test } from 'vitest';
import { encodeMad, parseMad } from '../../src/cm/core/mad.js';
import { ATTRIBUTE, LAYOUTS, type MessageName } from '../../src/cm/core/messages.js';
import { Random } from '../kit/random.js';
import { CONVERSATIONS, type Conversation, inState, PEER_ID, type RoleAndState } from './conversation.js';
import * as mads from './mads.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 9);
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const ROUNDS = Math.ceil(300 * SCALE);
const NAMES = Object.keys(ATTRIBUTE) as MessageName[];

/** A valid message, mostly about the connection. */
function good(talk: Conversation, random: Random): Uint8Array {
  const { ids } = talk;
  return random.pick([
    () => mads.req(),
    () => mads.req({ id: random.u32(), qpn: random.below(1 << 24) }),
    () => mads.rep(ids),
    () => mads.rtu(ids),
    () => mads.mra({ ...ids, subject: random.below(4), timeout: random.below(32) }),
    () => mads.rej({ ...ids, subject: random.below(4), reason: random.below(40), info: [...random.bytes(8)] }),
    () => mads.rej({ ...ids, subject: 2, reason: 4, info: mads.u64Bytes(mads.PEER_GUID) }),
    () => mads.dreq({ ...ids, qpn: 0x60 }),
    () => mads.drep(ids),
    () => mads.sidrReq(),
    () => mads.sidrRep({ tid: 1n, id: random.u32(), status: random.below(256), qpn: 1, qkey: 2, port: 3 }),
  ])();
}

/** A message with random fields, often with the ids of the connection. */
function noisy(talk: Conversation, random: Random): Uint8Array {
  const mad = new mads.Mad(ATTRIBUTE[random.pick(NAMES)], BigInt(random.u32())).put(0, random.bytes(232));
  if (random.chance(0.7)) mad.u32(0, PEER_ID);
  if (random.chance(0.7)) mad.u32(4, talk.id);
  if (random.chance(0.3)) mad.u64(8, 0x0106_1c06n);
  return mad.bytes;
}

function damaged(talk: Conversation, random: Random): Uint8Array {
  const bytes = good(talk, random);
  for (let i = random.between(1, 5); i > 0; i--) bytes[random.below(256)] = random.u32() & 255;
  if (random.chance(0.1)) return bytes.subarray(0, random.below(256));
  return random.chance(0.05) ? Uint8Array.from([...bytes, ...random.bytes(random.between(1, 300))]) : bytes;
}

const noise = (_: Conversation, random: Random) => random.bytes(random.chance(0.5) ? 256 : random.below(400));

group.each(Object.keys(CONVERSATIONS) as RoleAndState[])(`%s, seed ${SEED}`, (way) => {
  test.each([
    ['good messages at the wrong time', good],
    ['noise in the fields', noisy],
    ['damaged messages', damaged],
    ['noise', noise],
  ] as const)('%s', (_, make) => {
    const random = new Random(SEED);
    let heard = 0;
    for (let i = 0; i < ROUNDS / 10; i++) {
      const talk = inState(way);
      const before = total(talk);
      for (let n = 0; n < 10; n++) {
        const bytes = make(talk, random);
        try {
          talk.receive(bytes);
        } catch (cause) {
          throw new Error(`seed ${SEED}, round ${i}: ${Buffer.from(bytes).toString('hex')}`, { cause });
        }
        heard++;
        if (random.chance(0.1)) talk.wait(random.below(70_000));
        for (const { bytes: said } of talk.core.takeMessages()) expect(typeof parseMad(said)).toBe('object');
      }
      // each datagram is counted: as a message, or as dropped
      expect(total(talk) - before).toBe(10);
      talk.core.closeAll(talk.now);
      talk.wait(24 * 3600 * 1000);
      expect(talk.core.size).toBe(0);
    }
    expect(heard).toBeGreaterThan(100);
  });
});

function total({ core }: Conversation): number {
  const isOne = (name: string) => name.startsWith('cm_rx_msgs.') || /^cm_drop_(?!qpn)/.test(name);
  return Object.entries(core.counters()).reduce((sum, [name, count]) => (isOne(name) ? sum + count : sum), 0);
}

test('a message with any field values is read as it was written; reserved bits are 0', () => {
  const random = new Random(SEED);
  for (let i = 0; i < 2000 * SCALE; i++) {
    const name = random.pick(NAMES);
    const once = parseMad(new mads.Mad(ATTRIBUTE[name], 1n).put(0, random.bytes(232)).bytes);
    if (typeof once === 'string') throw new Error(once);
    expect(Object.keys(once).length).toBe(Object.keys(LAYOUTS[name]).length + 3);
    expect(parseMad(encodeMad(once.name, once.tid, once))).toEqual(once);
  }
});
