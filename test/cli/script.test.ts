// Rules of faults on the command line, and the command that checks and formats scripts.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { run } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-script-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const PINGPONG = ['pingpong', '--link', 'memory', '-s', '10000', '-m', '1024', '-n', '20', '-c', '--json'];

test('--fault hits the chosen packets, and the report counts them', async () => {
  const rules = [
    'drop the 3rd SEND_MIDDLE',
    'corrupt the 2nd SEND_LAST received, 2nd time too',
    'drop the 9999th SEND',
  ];
  const { status, stdout } = await run([...PINGPONG, ...rules.flatMap((rule) => ['--fault', rule])]);
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ ok: true, checked: 20, invalid: 0 },
    faults: { rule_1_hits: 1, rule_2_hits: 2, rule_3_hits: 0 },
  });
});

test.each([
  [['--fault', 'drop the 5 *'], 'argument \'drop the 5 *\' is invalid. fault:1:10: expected ordinal, found "5"'],
  [Array(17).fill(['--fault', 'drop every *']).flat(), 'There must be at most 16 rules.'],
])('refuses %j', async (words, message) => {
  const { status, stderr } = await run(['pingpong', ...words, '127.0.0.1']);
  expect(status).toBe(2);
  expect(stderr).toContain(message);
});

test('script check names every mistake with its position', async () => {
  const [good, bad] = [file('good.roce', '> SEND_ONLY\n'), file('bad.roce', '> SENDS\ncheck x\n')];
  const worse = file('worse.roce', 'let = 1\n');
  expect(await run(['script', 'check', good])).toMatchObject({ status: 0, stdout: '1 scripts without mistakes\n' });
  const { status, stdout } = await run(['script', 'check', good, bad, worse, '--json']);
  expect(status).toBe(1);
  const { ok, scripts, mistakes } = JSON.parse(stdout);
  expect({ ok, scripts }).toEqual({ ok: false, scripts: 3 });
  expect(mistakes).toMatchObject([
    { script: bad, line: 1, column: 3 },
    { script: bad, line: 2, column: 7 },
    { script: worse, line: 1, column: 5 },
  ]);
});

test('script format writes the one form, and nothing if one script has a mistake', async () => {
  const [wild, formed] = [file('wild.roce', 'let x=1\n\n\n\n  wait   1ms'), 'let x = 1\n\nwait 1ms\n'];
  const bad = file('bad.roce', 'let = 1\n');
  expect(await run(['script', 'format', '--dry-run', wild])).toMatchObject({ status: 1 });
  const refused = await run(['script', 'format', wild, bad]);
  expect(refused).toMatchObject({ status: 1, stderr: expect.stringContaining(`${bad}:1:5: expected`) });
  expect(readFileSync(wild, 'utf8')).not.toBe(formed);
  expect(await run(['script', 'format', wild])).toMatchObject({ status: 0 });
  expect(readFileSync(wild, 'utf8')).toBe(formed);
  expect(await run(['script', 'format', '--dry-run', wild])).toMatchObject({ status: 0 });
  const absent = await run(['script', 'check', join(folder, 'absent.roce')]);
  expect(absent).toMatchObject({ status: 3, stderr: expect.stringContaining('cannot be read') });
});
