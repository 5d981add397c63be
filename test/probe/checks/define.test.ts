// Checks that users write: what is wrong about them is found before they run.
import { expect, test } from 'vitest';
import { defineCheck } from '../../../src/probe/checks/define.js';
import { CHECKS } from '../../../src/probe.js';

const texts = { title: 'It holds', clause: 'none', sends: 'nothing', expects: 'nothing' };
const own = { number: 1000, name: 'own', ...texts, needs: { receives: false }, run: async () => {} };

test('the checks of the package are well defined', () => {
  for (const check of CHECKS) expect(defineCheck(check as never)).toBe(check);
});

test.each([
  [{ name: 'Own check' }, 'the name of a check is Own check, must be lower-case words with hyphens between them'],
  [{ name: '5' }, 'the name of a check is 5, must be lower-case words with hyphens between them'],
  [{ number: 1.5 }, 'check own: number is 1.5, must be an integer from 0'],
  [{ sends: undefined }, 'check own: sends is undefined, must be a text'],
  [{ asks: { anyOf: ['SEND'] } }, 'check own: it must have one of needs, asks, connects, or a rule'],
  [{ rule: { broken: 'are wrong' } }, 'check own: rule.judge must be a function'],
  [{ run: 5 }, 'check own: run must be a function'],
])('%o', (wrong, message) => {
  expect(() => defineCheck({ ...own, ...wrong } as never)).toThrow(new TypeError(message));
});

test('a check of a requester needs a kind of requests', () => {
  const { needs: _, ...rest } = own;
  expect(() => defineCheck({ ...rest, asks: { anyOf: [] } })).toThrow('asks.anyOf must name a kind of requests');
  expect(() => defineCheck({ ...rest } as never)).toThrow('it must have one of needs, asks, connects');
});
