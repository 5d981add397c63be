// Commands publish their devices, and show the last packets when they fail.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { PublishedDevice } from '../../src/index.js';
import { run, start } from './run.js';

test('stat shows the devices of a running pingpong, which leaves no socket behind', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  const env = { XDG_RUNTIME_DIR: folder };
  const running = start(['pingpong', '--link', 'memory', '-n', '1000000'], { env });
  const read = async () => JSON.parse((await run(['stat', '--json'], { env })).stdout) as PublishedDevice[];
  let devices: PublishedDevice[] = [];
  for (let i = 0; i < 20 && devices.length < 2; i++) devices = await read();
  expect(devices.map(({ pid, name }) => `${pid} ${name}`)).toEqual([0, 1].map((n) => `${running.pid} wasm-mem${n}`));
  running.child.kill('SIGINT');
  expect((await running.ended).status).toBe(130);
  expect(await read()).toEqual([]);
  rmSync(folder, { recursive: true });
});

test.each([[['pingpong', '--timeout', '8']], [['send-lat', '-u', '8', '--trace']]])(
  'a failure shows the last packets: %s',
  async (command) => {
    const args = [...command, '--link', 'memory', '-n', '1000', '--drop', '0.9', '--retry', '1'];
    const { status, stderr } = await run([...args, '--seed', '1']);
    expect(status).toBe(1);
    expect(stderr).toMatch(/RETRY_EXC_ERR/);
    expect(stderr).toMatch(
      /the last packets of this queue pair:\n {2,}-?\d+\.\d+ ms {2}sent {2}10\..* RC SEND_\w+ qp 0x/,
    );
  },
);
