// Warnings, in a process and in a page.
import { expect, test, vi } from 'vitest';
import { emitWarning } from '../../src/base/warning.js';

test('a warning is one of the process, with its code', () => {
  const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
  emitWarning('WASM_ROCE_ICRC', 'none fits');
  expect(warn.mock.calls).toEqual([['none fits', { code: 'WASM_ROCE_ICRC' }]]);
  warn.mockRestore();
});

test('without a process, as in a page, a warning goes to the console', () => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue();
  vi.stubGlobal('process', undefined);
  emitWarning('WASM_ROCE_ICRC', 'none fits');
  vi.unstubAllGlobals();
  expect(warn.mock.calls).toEqual([['WASM_ROCE_ICRC: none fits']]);
  warn.mockRestore();
});
