// What the command tells of this host.
import { expect, test } from 'vitest';
import { XdpLink } from '../../src/link/xdp.js';
import { all, programPrivilege, testIf, xdpPrivilege } from '../kit/privileges.js';
import { sh } from '../link/far.js';
import { Rig } from '../link/rig.js';
import { NO_ADDON, run } from './run.js';

interface Info {
  interfaces: {
    interface: string;
    interfaceMtu: number;
    activeMtu: number;
    gids: { gid: string; address: string }[];
  }[];
  capabilities: { addon: boolean; netRaw: boolean; xdp: boolean };
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

testIf(
  all(xdpPrivilege(), programPrivilege('ip')),
  'what an interface offers the xdp link, and who has it: queues are not opened for that',
  async () => {
    sh('ip link add devi0 type veth peer name devi1; ip link set devi0 up; ip addr add 10.197.0.1/24 dev devi0');
    const offer = / {2}xdp {7}native, no zero copy, any MTU/;
    expect((await run(['devinfo', 'devi0'])).stdout).toMatch(new RegExp(`${offer.source}\\n`));
    const { link } = new Rig(XdpLink.open({ interface: 'devi0' }));
    const { stdout } = await run(['devinfo', 'devi0']);
    expect(stdout).toMatch(new RegExp(`${offer.source}, program \\d+ runs in native mode\\n`));
    expect(stdout).toMatch(/for link xdp +all that it needs/);
    link.close();
    sh('ip link del devi0');
  },
);
