// Sharing an interface with the xdp link: several cards on different queues share it, another XDP program does not.
// Nothing is left of a card that has ended, however it ended.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { attachedProgram } from '../../src/link/xdp/features.js';
import { XdpLink, type XdpLinkOptions } from '../../src/link/xdp/link.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { sh } from './netns.js';
import { Rig, udpFrame } from './rig.js';

const A = ['10.193.0.1', '10.193.0.2'] as const;
const B = ['10.193.0.11', '10.193.0.12'] as const;
const MODULE = fileURLToPath(new URL('../../src/link/xdp/link.ts', import.meta.url));
const RIG = fileURLToPath(new URL('rig.ts', import.meta.url));
const tsx = (program: string) => ['--import', 'tsx', '--input-type=module', '-e', program];

describeIf(all(xdpPrivilege(), programPrivilege('ip')), 'a veth pair with two queues', () => {
  beforeAll(() => {
    sh('ip link add lkz0 numtxqueues 2 numrxqueues 2 type veth peer name lkz1 numtxqueues 2 numrxqueues 2');
    for (const [dev, addresses] of [
      ['lkz0', A],
      ['lkz1', B],
    ] as const)
      sh(`ip link set ${dev} up; ${addresses.map((address) => `ip addr add ${address}/24 dev ${dev}; `).join('')}`);
  });
  afterAll(() => void sh('ip link del lkz0'));

  const near = (options: XdpLinkOptions = {}) => XdpLink.open({ interface: 'lkz0', ...options });
  const opened = (options: XdpLinkOptions = {}) => new Rig(near(options));
  const program = () => attachedProgram(near().interface.index);
  /**
   * Sends a frame from the far end to an address of the near end by the queue of a link. Returns what arrives there.
   */
  async function passes(from: Rig, source: string, to: Rig, destination: string, text: string): Promise<string[]> {
    const payload = Buffer.from(text);
    from.put(udpFrame({ source, destination, destMac: [...to.link.interface.mac], payload }));
    from.link.send(0);
    return (await to.gather(1, 500)).map(({ frame }) => frame.subarray(42, 42 + text.length).toString());
  }

  test('one card has all queues', async () => {
    const a = opened();
    expect(a.link.notes?.[0]).toContain('queues 0, 1;');
    for (const queue of [0, 1]) {
      const b = new Rig(XdpLink.open({ interface: 'lkz1', queues: [queue] }));
      expect(await passes(b, B[0], a, A[0], `by ${queue}`)).toEqual([`by ${queue}`]);
      b.link.close();
    }
    a.link.close();
    expect(program()).toBeUndefined();
  });

  test('a queue serves one card, and a second card is refused with the reason', () => {
    const a = opened({ queues: [1] });
    expect(() => opened({ queues: [1] })).toThrow(/EBUSY: queue 1 of lkz0 is taken by another AF_XDP socket/);
    expect(() => opened()).toThrow(/EBUSY: queue 1 of lkz0/);
    expect(() => opened({ queues: [7] })).toThrow(/queue 7/);
    expect(program()).toBeDefined();
    a.link.close();
    expect(() => opened({ queues: [0, 7] })).toThrow('EINVAL: lkz0 has no queue 7');
    expect(program()).toBeUndefined();
  });

  test('two cards by their queues, with addresses of their own, share one XDP program', async () => {
    const [a0, a1] = [0, 1].map((n) => opened({ queues: [n], addresses: [A[n] as string] })) as [Rig, Rig];
    const [b0, b1] = [0, 1].map(
      (n) => new Rig(XdpLink.open({ interface: 'lkz1', queues: [n], addresses: [B[n] as string] })),
    ) as [Rig, Rig];
    expect(a1.link.notes?.[1]).toMatch(/shared/);
    expect(await passes(b0, B[0], a0, A[0], 'first')).toEqual(['first']);
    expect(await passes(b1, B[1], a1, A[1], 'second')).toEqual(['second']);
    expect(await passes(a1, A[1], b1, B[1], 'back')).toEqual(['back']);
    // A packet to the address of one card on the queue of the other goes to the kernel.
    expect(await passes(b1, B[1], a0, A[0], 'stray')).toEqual([]);
    expect(a1.take()).toEqual([]);
    // The first card may close first.
    a0.link.close();
    expect(await passes(b1, B[1], a1, A[1], 'still')).toEqual(['still']);
    const again = opened({ queues: [0], addresses: [A[0]] });
    expect(await passes(b0, B[0], again, A[0], 'again')).toEqual(['again']);
    for (const { link } of [again, a1, b0, b1]) link.close();
    expect(program()).toBeUndefined();
  });

  /** Starts another process with a card on these queues. */
  async function stranger(queues: string): Promise<ChildProcess> {
    const text = `
      import { XdpLink } from '${MODULE}';
      import { Rig } from '${RIG}';
      globalThis.rig = new Rig(XdpLink.open({ interface: 'lkz0', queues: [${queues}] }));
      console.log('ready');
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, tsx(text), { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout as NodeJS.ReadableStream, 'data');
    return child;
  }

  test('SIGKILL leaves nothing: no program, and the queue is free at once', async () => {
    const child = await stranger('0, 1');
    expect(program()).toBeDefined();
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(program()).toBeUndefined();
    const a = opened();
    const b = new Rig(XdpLink.open({ interface: 'lkz1' }));
    expect(await passes(b, B[0], a, A[0], 'alive')).toEqual(['alive']);
    a.link.close();
    b.link.close();
  });

  test('cards of two processes share the program, also after the one that loaded it is killed', async () => {
    const child = await stranger('0');
    const a = opened({ queues: [1] });
    const b = new Rig(XdpLink.open({ interface: 'lkz1', queues: [1] }));
    const { id } = program() ?? {};
    expect(await passes(b, B[0], a, A[1], 'both')).toEqual(['both']);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(program()?.id).toBe(id);
    expect(await passes(b, B[0], a, A[1], 'one')).toEqual(['one']);
    a.link.close();
    b.link.close();
    expect(program()).toBeUndefined();
  });

  test('the kernel’s own way, without zero copy and with busy polling is used as asked for', async () => {
    const a = opened({ mode: 'generic', zeroCopy: false, busyPoll: 20 });
    expect(a.link.notes).toEqual(['XDP in generic mode; copy mode; queues 0, 1; busy polling for 20 us']);
    expect(program()?.mode).toBe('generic');
    const b = new Rig(XdpLink.open({ interface: 'lkz1' }));
    expect(await passes(b, B[0], a, A[0], 'generic')).toEqual(['generic']);
    expect(await passes(a, A[0], b, B[0], 'native')).toEqual(['native']);
    a.link.close();
    b.link.close();
    expect(() => opened({ zeroCopy: true })).toThrow(
      'EOPNOTSUPP: the driver of lkz0 has no zero-copy mode for queue 0',
    );
    expect(program()).toBeUndefined();
  });

  test('without XDP in the driver the kernel runs the program, and the notes say so', () => {
    sh('ip link add lkzd type bridge; ip link set lkzd up; ip addr add 10.194.0.1/24 dev lkzd');
    const rig = new Rig(XdpLink.open({ interface: 'lkzd' }));
    expect(rig.link.notes?.[0]).toMatch(
      /^XDP in generic mode, because the driver refuses native mode \(ENOTSUP\); copy mode/,
    );
    rig.link.close();
    sh('ip link del lkzd');
  });

  test('an interface with another XDP program is refused, with the remedy', () => {
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-stranger-'));
    const object = join(folder, 'stranger.o');
    const text = '__attribute__((section("xdp"), used)) int stranger(void *frame) { return 2; } /* XDP_PASS */';
    execFileSync('clang', ['-target', 'bpf', '-O2', '-g', '-x', 'c', '-', '-c', '-o', object], { input: text });
    const attach = (mode: string, name: string) => {
      sh(`ip link set dev lkz0 ${name} obj ${object} sec xdp`);
      const found = program();
      expect(found?.mode).toBe(mode);
      return found?.id;
    };
    const native = attach('native', 'xdpdrv');
    expect(() => opened()).toThrow(
      new RegExp(
        `EBUSY: lkz0 has the XDP program ${native} \\('stranger'\\) in native mode.*ip link set dev lkz0 xdp off.*packet`,
      ),
    );
    sh('ip link set dev lkz0 xdp off');
    attach('generic', 'xdpgeneric');
    expect(() => opened()).toThrow(/in generic mode.*ip link set dev lkz0 xdpgeneric off/);
    expect(() => opened({ mode: 'native' })).toThrow(/EBUSY/);
    sh('ip link set dev lkz0 xdpgeneric off');
    rmSync(folder, { recursive: true });
    opened().link.close();
    expect(program()).toBeUndefined();
  });

  const tries = `
    const { XdpLink } = await import('${MODULE}');
    const { Rig } = await import('${RIG}');
    try { new Rig(XdpLink.open({ interface: 'lkz0' })); } catch (error) { console.log(error.message); }`;

  test('without libbpf the error names the package, and other links work', () => {
    const library = ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib', '/lib64']
      .map((folder) => `${folder}/libbpf.so.1`)
      .find((path) => existsSync(path));
    const udp = new URL('../../src/link/udp.ts', import.meta.url).href;
    const text = `${tries}
      const { UdpLink } = await import('${udp}');
      UdpLink.open({ interface: 'lkz0' }).close();
      console.log('udp works');`;
    const hide = 'mount --bind /dev/null "$1" && shift && exec "$@"';
    const command = ['--mount', 'sh', '-c', hide, 'sh', library ?? '', process.execPath, ...tsx(text)];
    expect(execFileSync('unshare', command, { encoding: 'utf8' })).toMatch(
      /^EOPNOTSUPP: the xdp link needs libbpf\.so\.1, which does not load \(.*\): on Debian install the package libbpf1\nudp works\n$/,
    );
  });

  test.each([
    ['-bpf,-sys_admin', 'EPERM: an XDP program needs the capabilities CAP_BPF and CAP_NET_ADMIN'],
    ['-net_raw', 'EPERM: an AF_XDP socket needs the capability CAP_NET_RAW'],
  ])('without capabilities (%s) the error names the remedy', (without, message) => {
    const drop = [`--bounding-set=${without}`, `--inh-caps=${without}`];
    const said = execFileSync('setpriv', [...drop, process.execPath, ...tsx(tries)], { encoding: 'utf8' });
    expect(said).toContain(message);
    expect(program()).toBeUndefined();
  });
});
