// Warnings, in a process and in a page.
import { expect, test, vi } from 'vitest';
import { emitWarning } from '../../src/base/warning.js';

test('emitWarning emits a warning of the process with its code', () => {
  const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
  emitWarning('WASM_ROCE_ICRC', 'none fits');
  expect(warn.mock.calls).toEqual([['none fits', { code: 'WASM_ROCE_ICRC' }]]);
  warn.mockRestore();
});

test('emitWarning writes to the console where there is no process, as in a page', () => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue();
  vi.stubGlobal('process', undefined);
  emitWarning('WASM_ROCE_ICRC', 'none fits');
  vi.unstubAllGlobals();
  expect(warn.mock.calls).toEqual([['WASM_ROCE_ICRC: none fits']]);
  warn.mockRestore();
});
