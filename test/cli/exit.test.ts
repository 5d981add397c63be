import { expect, test } from 'vitest';
import { Exit, errorReport, failure, interrupted, usageError } from '../../src/cli/exit.js';
import { VerbsError } from '../../src/index.js';

const cause = new VerbsError('ECONNREFUSED', '10.0.0.2 port 7471 refused the connection');

test.each([
  [failure('no connection', { cause }), 'ECONNREFUSED'],
  [failure('no connection', { cause: new Error('twice', { cause }) }), 'ECONNREFUSED'],
  [failure('wrong bytes'), 'EIO'],
  [failure('it left', { code: 'ECONNRESET' }), 'ECONNRESET'],
  [usageError('no such thing'), 'ERR_INVALID_ARG_VALUE'],
  [interrupted('before the end'), 'EINTR'],
  [cause, 'ECONNREFUSED'],
  [new DOMException('enough', 'AbortError'), 'ABORT_ERR'],
  [new Error('what is this'), 'EIO'],
])('the report of an error in JSON has the code of an error: %s', (error, code) => {
  expect(errorReport(error).code).toBe(code);
});

test('the code of a failure does not change its exit status', () => {
  expect(failure('no interface', { code: 'ENODEV' }).exit).toBe(Exit.FAILED);
});
