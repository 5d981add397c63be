import { expect, test } from 'vitest';
import { DEMO_STEPS, PLAYGROUND_STEPS, STEPS } from '../../scripts/setup.mjs';

const names = (steps: readonly { readonly name: string }[]) => steps.map(({ name }) => name);

test('the demo and the playground set up what they need, and no compilers, guests or servers of the tests', () => {
  const addon = `native addon for ${process.arch}`;
  expect(names(DEMO_STEPS)).toEqual([
    ...['Debian packages of the demo', 'npm packages', 'card', 'card as C', 'grammar of scripts', addon, 'package'],
  ]);
  expect(names(PLAYGROUND_STEPS)).toEqual(['npm packages', 'card', 'grammar of scripts']);
  const all = names(STEPS);
  expect(names([...DEMO_STEPS, ...PLAYGROUND_STEPS]).filter((name) => !all.includes(name))).toEqual([
    'Debian packages of the demo',
  ]);
});
