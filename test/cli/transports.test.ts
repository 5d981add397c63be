// uc-pingpong, ud-pingpong and srq-pingpong against themselves.
import { describe, expect, test } from 'vitest';
import type { Report } from '../../src/cli/pingpong/report.js';
import { freePort, run, start } from './run.js';

const SERVER = '127.82.0.1';
const CLIENT = '127.82.0.2';

describe.each([
  ['uc-pingpong', 'UC', 4096, 1],
  ['ud-pingpong', 'UD', 1024, 1],
  ['srq-pingpong', 'SRQ', 4096, 16],
])('%s', (command, transport, size, queuePairs) => {
  test('client and server through the udp link', async () => {
    const port = String(await freePort());
    const both = ['--link', 'udp', '-p', port, '-n', '50', '-c', '--json', '--idle', '15'];
    const server = start([command, '--address', SERVER, ...both]);
    try {
      await server.says('waiting for a client');
      const client = await run([command, '--address', CLIENT, ...both, SERVER]);
      for (const { status, stdout } of [client, await server.ended]) {
        const report = JSON.parse(stdout) as Report;
        expect({ status, ...report }).toMatchObject({ status: 0, ok: true, transport, size, queuePairs, invalid: 0 });
        expect(report.checked).toBeGreaterThanOrEqual(50);
      }
    } finally {
      server.child.kill('SIGKILL');
    }
  });

  test('both ends in one process', async () => {
    const { status, stdout } = await run([command, '--link', 'memory', '-n', '20', '-s', '1000', '-c']);
    expect({ status, stdout }).toMatchObject({ status: 0, stdout: expect.stringContaining('every byte right') });
    expect(stdout.match(/local address:/g)).toHaveLength(queuePairs);
  });

  test('help names the stock tool', async () => {
    const { status, stdout } = await run([command, '--help']);
    expect({ status, stdout }).toMatchObject({
      status: 0,
      stdout: expect.stringContaining(`ibv_${transport.toLowerCase()}_pingpong`),
    });
  });
});

test.each([
  [
    ['ud-pingpong', '--link', 'memory', '-s', '5000'],
    /a datagram of 5000 bytes \(--size\) is more than mem0 carries: .* allows \d+/,
  ],
  [['ud-pingpong', '-m', '1024'], /unknown option '-m'/],
  [['uc-pingpong', '--retry', '3'], /unknown option '--retry'/],
  [['srq-pingpong', '-q', '257'], /'257' is invalid.*from 1 to 256/],
  [['srq-pingpong', '--link', 'memory', '-r', '8'], /8 receives \(--rx-depth\) are too few for 16 queue pairs/],
])('%j: status 2', async (args, message) => {
  const { status, stderr } = await run(args);
  expect(status).toBe(2);
  expect(stderr).toMatch(message);
});

test('ends with different numbers of queue pairs', async () => {
  const port = String(await freePort());
  const both = ['--link', 'udp', '-p', port, '-n', '5', '--idle', '2'];
  const server = start(['srq-pingpong', '--address', SERVER, ...both, '-q', '4']);
  await server.says('waiting for a client');
  const client = await run(['srq-pingpong', '--address', CLIENT, ...both, '-q', '2', SERVER]);
  const { status, stderr } = await server.ended;
  expect([client.status, status]).toEqual([1, 1]);
  expect(stderr).toMatch(/the peer has 2 queue pairs and we have 4: give both ends the same -q/);
});
