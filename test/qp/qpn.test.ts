// Numbers of queue pairs: bits that the link has set, and how many must be left.
import { expect, test } from 'vitest';
import { Rig } from '../kit/rig.js';

const numbers = (rig: Rig, count: number) => Array.from({ length: count }, () => rig.qp().qpn);

test('numbers have the bits that the link has set, and random others', async () => {
  const rig = await Rig.create();
  expect(rig.x.setQpn(15, 9)).toBe(rig.x.Errno.OK);
  const qpns = numbers(rig, 20);
  expect(new Set(qpns.map((qpn) => qpn & 15))).toEqual(new Set([9]));
  expect(new Set(qpns.map((qpn) => qpn >> 4)).size).toBe(20);
  expect(rig.qp({ type: 'GSI' }).qpn).toBe(1);
});

test.each([
  ['a bit beside the mask', 15, 16],
  ['a bit beyond 24', 0x1000000, 0],
  ['too few numbers left', 0xfffff0, 0],
])('%s is refused, and nothing changes', async (_name, mask, bits) => {
  const rig = await Rig.create();
  expect(rig.x.setQpn(mask, bits)).toBe(rig.x.Errno.EINVAL);
  expect(new Set(numbers(rig, 20).map((qpn) => qpn & 0xf0)).size).toBeGreaterThan(1);
});
