// A capture that is not whole says so, and no file makes a command hang.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { openDevice } from '../../src/index.js';
import { run } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'capture-'));
afterAll(() => rmSync(folder, { recursive: true }));

const pingpong = (file: string, ...more: string[]) =>
  run(['pingpong', '--link', 'memory', '-n', '200', '--pcap', file, ...more]);

function fifo(name: string): string {
  const path = join(folder, name);
  execFileSync('mkfifo', [path]);
  return path;
}

test('a command whose capture meets a full disk says so at its end, and exits with status 1', async () => {
  const { status, stderr } = await pingpong('/dev/full');
  expect(stderr).toContain('the capture /dev/full is not whole: after');
  expect(stderr).toContain('(ENOSPC)');
  expect(status).toBe(1);
});

test('the close of a device in mode worker fails once when its capture meets a full disk', async () => {
  const device = await openDevice({ link: 'udp', addresses: ['127.0.0.9'], mode: 'worker', pcap: '/dev/full' });
  await expect(device.close()).rejects.toMatchObject({ code: 'EIO', message: expect.stringContaining('ENOSPC') });
  await device.close();
});

test('a command refuses a pipe without a reader for its capture', async () => {
  const { status, stderr } = await pingpong(fifo('unread'));
  expect(stderr).toContain('is a pipe that nobody reads: start its reader first (ENXIO)');
  expect(status).toBe(1);
});

test('a command writes its whole capture to a pipe whose reader reads', async () => {
  const path = fifo('read');
  const reader = spawn('cat', [path], { stdio: ['ignore', 'pipe', 'ignore'] });
  const parts: Buffer[] = [];
  reader.stdout.on('data', (part) => parts.push(part));
  const ended = new Promise((resolve) => reader.once('close', resolve));
  // the reader opens the pipe meanwhile
  await new Promise((resolve) => setTimeout(resolve, 500));
  const { status } = await pingpong(path, '-s', '4096');
  await ended;
  expect(status).toBe(0);
  expect(Buffer.concat(parts).length).toBeGreaterThan(400 * 4096);
});

test('a command whose capture nobody reads any more ends it, says so, and completes its transfer', async () => {
  const path = fifo('slow');
  const reader = spawn('sh', ['-c', `exec 3< ${path}; sleep 30`], { stdio: 'ignore' });
  await new Promise((resolve) => setTimeout(resolve, 500));
  const { status, stderr } = await pingpong(path, '-s', '4096');
  reader.kill();
  expect(stderr).toContain('the reader of the pipe is too slow (EAGAIN)');
  expect(status).toBe(1);
});
