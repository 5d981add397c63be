// Help, wrong usage and exit statuses.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { run } from './run.js';

const ROOT = join(import.meta.dirname, '../..');

describe('help', () => {
  test('without a command is printed to standard error, status 2', async () => {
    const { status, stdout, stderr } = await run([]);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain('Usage: wasm-roce');
  });

  test.each([
    ['--help'],
    ['pingpong', '--help'],
    ['devinfo', '--help'],
    ['demo', '--help'],
    ['listen', '--help'],
    ['connect', '--help'],
  ])('%s %s has examples and exit statuses, on standard output, status 0', async (...args) => {
    const { status, stdout, stderr } = await run(args);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('Examples:\n  wasm-roce');
    expect(stdout).toContain('Exit status: 0 done');
  });
});

test('--version prints that of the package', async () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  expect(await run(['--version'])).toEqual({ status: 0, stdout: `wasm-roce ${version}\n`, stderr: '' });
});

test('a signal before a command handles it is not forgotten, and the second one ends the process', async () => {
  // a process that never returns to its event loop while it starts
  const program = `
    import { onStop } from '${join(ROOT, 'src/cli/exit.ts')}';
    process.on('SIGTERM', () => process.exit(1));
    setTimeout(() => process.exit(2), 20_000);
    process.kill(process.pid, 'SIGTERM');
    onStop((name) => {
      console.log(name);
      process.kill(process.pid, 'SIGINT');
    });`;
  const node = ['--import', 'tsx', '--input-type=module', '--eval', program];
  const ended = promisify(execFile)(process.execPath, node, { cwd: ROOT });
  await expect(ended).rejects.toMatchObject({ code: 130, stdout: 'SIGTERM\n' });
});

describe('wrong usage ends with status 2 and one line that names the value and the rule', () => {
  test.each([
    [['dance'], "unknown command 'dance'"],
    [['pingpong', '--nope'], "unknown option '--nope'"],
    [['pingpong', '-s', '12x'], /'12x' is invalid.*bytes from 0 to 1073741824/],
    [['pingpong', '-p', '70000'], /'70000' is invalid.*integer from 1 to 65535/],
    ...['pingpong', 'endpoint', 'probe', 'listen'].map(
      (command) => [[command, '-i', '2'], /'2' is invalid.*from 1 to 1/] as [string[], RegExp],
    ),
    [['pingpong', '-m', '1500'], /'1500' is invalid.*256, 512, 1024, 2048, 4096/],
    [['pingpong', '--drop', '1.5'], /'1.5' is invalid.*probability from 0 to 1/],
    [['pingpong', '--address', 'here'], /'here' is invalid.*IPv4 or IPv6 address/],
    [['pingpong', '--link', 'smoke'], /'smoke' is invalid.*packet, udp, xdp, memory/],
    [['pingpong', '--link', 'memory', 'host'], /--link memory.*takes no HOST/],
    [['pingpong', '127.0.0.1', '--keep'], /--keep is for the server/],
    [['pingpong', 'one', 'two'], 'too many arguments'],
    [['listen', '70000'], /'70000' is invalid.*integer from 0 to 65535/],
    [['connect', '127.0.0.1', '7471', '--link', 'memory'], /--link memory connects two ends of one process/],
    [['demo', '--link', 'tcp'], /'tcp' is invalid/],
    [['stat', '--watch', '0'], /'0' is invalid.*number from 0\.1 to 86400/],
    [['atomic-lat', '-c', 'UD'], /'UD' is invalid. Allowed choices are RC\./],
  ])('%j', async (args, message) => {
    const { status, stdout, stderr } = await run(args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^wasm-roce: .*\n$/);
  });
});

test('--debug adds the stack', async () => {
  const { status, stderr } = await run(['pingpong', '--link', 'memory', 'host', '--debug']);
  expect(status).toBe(2);
  expect(stderr).toMatch(/\n {4}at /);
});
