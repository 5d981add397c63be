// The TurnLock of a card's thread without JavaScript is on the same words.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const source = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

/** Returns the members of an enumeration, named as in TypeScript. */
function members(text: string, name: string, separator: RegExp): Record<string, number> {
  const body = new RegExp(`enum ${name} \\{([^}]*)\\}`).exec(text)?.[1] ?? '';
  const found = body.split(separator).flatMap((line) => {
    const [, member, value] = /(\w+) = (\d+)/.exec(line) ?? [];
    const named = member?.replace(/^k(?=[A-Z])/, '').replace(/(?<=[a-z])(?=[A-Z])/g, '_');
    return named === undefined ? [] : [[named.toUpperCase(), Number(value)]];
  });
  return Object.fromEntries(found);
}

test('both TurnLocks have the same words, states and sizes', () => {
  const [ours, theirs] = [source('src/device/turnlock.ts'), source('native/core/turnlock.h')];
  for (const [ts, cc] of [
    ['WordIndex', 'Word'],
    ['WorkerState', 'State'],
  ] as const) {
    const expected = members(ours, ts, /\n/);
    expect(Object.keys(expected).length).toBeGreaterThan(3);
    expect(members(theirs, cc, /,/)).toEqual(expected);
  }
  const constant = (text: string, name: string) => Number(new RegExp(`\\b${name} = (\\d+)`).exec(text)?.[1]);
  for (const [ts, cc] of [
    ['AWAITED', 'kAwaited'],
    ['WORD_BYTES', 'kWordBytes'],
    ['MAX_FAILURE_BYTES', 'kMaxFailureBytes'],
  ] as const)
    expect(constant(theirs, cc)).toBe(constant(ours, ts));
});
