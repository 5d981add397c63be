// The check path-mtu over paths that carry no long packets.
import { expect, test } from 'vitest';
import { PATH_MTU_CHECK } from '../../../src/probe/checks/pathmtu.js';
import { runCheck } from '../../../src/probe/checks/run.js';
import type { Target } from '../../../src/probe/checks/target.js';
import { CardTarget } from './cardtarget.js';
import { Double } from './double.js';
import { Path } from './path.js';

/** Bytes around a WRITE in an IPv4 frame: Ethernet, IP, UDP, BTH, RETH, ICRC. */
const WRITE = 14 + 20 + 8 + 12 + 16 + 4;
/** Bytes around a READ response: Ethernet, IP, UDP, BTH, AETH, ICRC. */
const READ = 14 + 20 + 8 + 12 + 4 + 4;

const PEERS: readonly (readonly [string, () => Promise<Target>])[] = [
  ['the double', async () => new Double()],
  ['the card', () => CardTarget.open()],
];

async function found(target: Target): Promise<readonly unknown[]> {
  const { verdict, text, measurements } = await runCheck(PATH_MTU_CHECK, target);
  return [verdict, text, measurements.largest_write?.[0], measurements.largest_read?.[0]];
}

test.each(PEERS)('a path that carries all packets passes, to %s', async (_name, open) => {
  expect(await found(await open())).toEqual(['pass', '', 1024, 1024]);
});

test.each(PEERS)(
  'a path that carries no long packets is detected, and its MTU is measured, to %s',
  async (_name, open) => {
    const longest = [14 + 700, 14 + 1023] as const;
    expect(await found(new Path(await open(), { longest }))).toEqual([
      'fails',
      'the path to the peer carries IP packets of 700 bytes, and a path MTU of 1024 needs 1084; ' +
        'the path from the peer carries IP packets of 1020 bytes, and a path MTU of 1024 needs 1072',
      ...[700 + 14 - WRITE, 972],
    ]);
    expect(READ + 972).toBe(14 + 1020);
  },
);

test('one direction whose packets are lost above a size is named alone', async () => {
  expect(await found(new Path(new Double(), { longest: [2000, 14 + 600] }))).toEqual([
    'fails',
    'the path from the peer carries IP packets of 600 bytes, and a path MTU of 1024 needs 1072',
    ...[1024, 600 + 14 - READ],
  ]);
});

test('a path that carries nothing to the peer is reported as such', async () => {
  expect((await found(new Path(new Double(), { longest: [0, 2000] }))).slice(0, 2)).toEqual([
    ...['fails', 'no answer to a WRITE of 4 bytes'],
  ]);
});

test('other loss does not change the result', async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const path = new Path(new Double(), { longest: [14 + 700, 14 + 600], loss: 0.02, seed });
    expect((await found(path)).slice(2), `seed ${seed}`).toEqual([700 + 14 - WRITE, 600 + 14 - READ]);
  }
});
