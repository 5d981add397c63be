// The output of devinfo on this host.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { firewall, obstaclesOn } from '../../src/cli/preflight.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import { all, programPrivilege, testIf, xdpPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
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

test('an interface is shown with its GIDs, its default link with the reason, and the limits', async () => {
  const { status, stdout } = await run(['devinfo', 'lo']);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^lo\n {2}state +ACTIVE/);
  expect(stdout).toMatch(/MTU +65536 -> path MTU up to 4096/);
  expect(stdout).toMatch(/link +(packet|udp), because/);
  expect(stdout).toMatch(/0 +::ffff:127\.0\.0\.1 +RoCE v2 +127\.0\.0\.1/);
  expect(stdout).toMatch(/maxQp +\d+/);
  expect(stdout).toMatch(/CAP_NET_RAW +(present|MISSING)/);
});

test('--json prints one object and nothing else', async () => {
  const { status, stdout } = await run(['devinfo', '--json']);
  expect(status).toBe(0);
  const info = JSON.parse(stdout) as Info;
  const lo = info.interfaces.find((end) => end.interface === 'lo');
  expect(lo?.gids[0]).toMatchObject({ gid: '::ffff:127.0.0.1', address: '127.0.0.1', type: 'RoCE v2' });
  expect(lo).toMatchObject({ state: 'ACTIVE', activeMtu: 4096 });
  expect(info.limits.maxSge).toBe(32);
});

test('an interface that does not exist gives status 3, and the names of those that do', async () => {
  const { status, stdout, stderr } = await run(['devinfo', 'nope0', '--json']);
  expect(status).toBe(3);
  expect(stderr).toMatch(/^wasm-roce: there is no interface 'nope0'; interfaces: .*lo.*\n$/);
  expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: { message: expect.stringContaining('nope0') } });
});

test('without the addon it prints what it can, and names what is missing', async () => {
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
    expect(stdout).toMatch(/xdp link +available/);
    link.close();
    sh('ip link del devi0');
  },
);

describe('obstacles that keep packets away', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'wasm-roce-sys-'));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  const on = (name: string) => obstaclesOn({ interface: name, xdpProgram: undefined }, root);

  /** An adapter as sysfs shows it. */
  function adapter(type: string): void {
    mkdirSync(join(root, 'devices/0000:01:00.0/infiniband/mlx5_0'), { recursive: true });
    mkdirSync(join(root, 'class/net/eth0'), { recursive: true });
    symlinkSync('../../../devices/0000:01:00.0', join(root, 'class/net/eth0/device'));
    write('class/infiniband/mlx5_0/ports/1/gid_attrs/types/0', `${type}\n`);
    write('class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0', 'eth0\n');
  }

  test('an adapter with RoCE v2 on the interface is named with the command that disables it', () => {
    adapter('RoCE v2');
    const [obstacle, ...more] = on('eth0');
    expect(more).toEqual([]);
    expect(obstacle).toMatchObject({
      kind: 'hardware RoCE',
      text: expect.stringContaining('(mlx5_0) takes UDP port 4791'),
    });
    expect(obstacle?.text).toContain('devlink dev param set pci/0000:01:00.0 name enable_roce value false');
    expect(on('eth1')).toEqual([]);
  });

  test('an adapter without RoCE v2, such as InfiniBand or with enable_roce off, is no obstacle', () => {
    adapter('IB/RoCE v1');
    expect(on('eth0')).toEqual([]);
  });

  test('an XDP program is named', () => {
    const [obstacle] = obstaclesOn({ interface: 'eth0', xdpProgram: { id: 7, mode: 'native' } }, root);
    expect(obstacle).toMatchObject({ kind: 'XDP program', text: expect.stringContaining('bpftool prog show id 7') });
  });

  test('a firewall is none, loaded, or unknown', () => {
    expect(firewall(root).state).toBe('unknown');
    write('modules', 'veth 40960 0 - Live 0x0\n');
    expect(firewall(root)).toMatchObject({ state: 'none' });
    write('net/ip_tables_names', 'nat\n');
    expect(firewall(root).state).toBe('none');
    write('net/ip_tables_names', 'nat\nfilter\n');
    write('modules', 'nf_tables 300000 12 nft_ct, Live 0x0\n');
    const { state, text } = firewall(root);
    expect(state).toBe('possible');
    expect(text).toMatch(/^iptables and nftables loaded; cannot tell .*: iptables -S; nft list ruleset$/);
    // a folder cannot be read as a file: neither can what only root may read
    rmSync(join(root, 'net/ip_tables_names'));
    write('net/ip_tables_names/x', '');
    write('modules', 'veth 40960 0 - Live 0x0\n');
    expect(firewall(root)).toMatchObject({ state: 'unknown', text: expect.stringMatching(/^cannot tell/) });
  });
});
