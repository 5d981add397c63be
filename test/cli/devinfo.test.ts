// What the command tells of this host.
import { expect, test } from 'vitest';
import { NO_ADDON, run } from './run.js';

interface Info {
  interfaces: {
    interface: string;
    interfaceMtu: number;
    activeMtu: number;
    gids: { gid: string; address: string }[];
  }[];
  capabilities: { addon: boolean; netRaw: boolean };
  limits: Record<string, unknown>;
  notes: string[];
}

test('an interface with its GIDs, the link it would get and why, and the limits', async () => {
  const { status, stdout } = await run(['devinfo', 'lo']);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^lo\n {2}state +ACTIVE/);
  expect(stdout).toMatch(/MTU +65536 -> path MTU up to 4096/);
  expect(stdout).toMatch(/link +(packet|udp), because/);
  expect(stdout).toMatch(/0 +::ffff:127\.0\.0\.1 +RoCE v2 +127\.0\.0\.1/);
  expect(stdout).toMatch(/maxQp +\d+/);
  expect(stdout).toMatch(/CAP_NET_RAW +(present|MISSING)/);
});

test('--json: one object and nothing else', async () => {
  const { status, stdout } = await run(['devinfo', '--json']);
  expect(status).toBe(0);
  const info = JSON.parse(stdout) as Info;
  const lo = info.interfaces.find((end) => end.interface === 'lo');
  expect(lo?.gids[0]).toMatchObject({ gid: '::ffff:127.0.0.1', address: '127.0.0.1', type: 'RoCE v2' });
  expect(lo).toMatchObject({ state: 'ACTIVE', activeMtu: 4096 });
  expect(info.limits.maxSge).toBe(32);
});

test('an interface that does not exist: status 3, and the names of those that do', async () => {
  const { status, stdout, stderr } = await run(['devinfo', 'nope0', '--json']);
  expect(status).toBe(3);
  expect(stderr).toMatch(/^wasm-roce: there is no interface 'nope0'; there is .*lo.*\n$/);
  expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: { message: expect.stringContaining('nope0') } });
});

test('without the addon it tells what it can, and what is missing', async () => {
  const { status, stdout } = await run(['devinfo', '--json'], { node: NO_ADDON });
  expect(status).toBe(0);
  const { interfaces, capabilities, notes } = JSON.parse(stdout) as Info;
  expect(capabilities.addon).toBe(false);
  expect(interfaces.find((end) => end.interface === 'lo')?.gids[0]?.address).toBe('127.0.0.1');
  expect(notes.join('\n')).toContain('the native addon does not load');
});
