// The card's thread polls for work before it sleeps, for a time that adapts to the last sleeps.
import { expect, test } from 'vitest';
import { Spin } from '../../src/device/spin.js';

const MAX = 64_000;

test('a spin lasts as long as allowed at first', () => {
  expect(new Spin(MAX).duration).toBe(MAX);
});

test('long sleeps shorten the spin, in the end to nothing', () => {
  const spin = new Spin(MAX);
  const lengths: number[] = [];
  for (let i = 0; i < 8; i++) {
    spin.recordSleep(1e6);
    lengths.push(spin.duration);
  }
  expect(lengths).toEqual([32_000, 16_000, 8000, 4000, 2000, 0, 0, 0]);
});

test('sleeps that a longer spin would have saved lengthen it again, up to the limit', () => {
  const spin = new Spin(MAX);
  for (let i = 0; i < 8; i++) spin.recordSleep(1e6);
  const lengths: number[] = [];
  for (let i = 0; i < 5; i++) {
    spin.recordSleep(MAX / 2);
    lengths.push(spin.duration);
  }
  expect(lengths).toEqual([8000, 16_000, 32_000, 64_000, 64_000]);
});

test('a spin of zero or without limit does not change', () => {
  for (const max of [0, Number.POSITIVE_INFINITY]) {
    const spin = new Spin(max);
    for (const duration of [1, 1e6, 1e9]) spin.recordSleep(duration);
    expect(spin.duration).toBe(max);
  }
});
