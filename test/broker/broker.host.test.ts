// Programs that share addresses through the broker: separate processes in a network namespace of their own.
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { OpenOptions } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { Random } from '../kit/random.js';
import { PeerNamespace } from '../link/netns.js';
import { churn } from './churn.js';
import { Program, UNPRIVILEGED } from './programs.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
/** Users that are not root. */
const OTHERS = [65534, 65533];
const ADDRESSES = ['127.0.0.1', '::1'];
const LOOPBACK: OpenOptions = { link: 'udp', interface: 'lo', addresses: ADDRESSES };

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'), programPrivilege('setpriv'));

describeIf(privilege, 'programs on one address', () => {
  let host: PeerNamespace;
  beforeEach(async () => {
    host = await PeerNamespace.open('brk', 199);
  });
  afterEach(() => host.close());

  const serve = (number: number) => Program.serve(host, number, LOOPBACK, UNPRIVILEGED);
  const launch = (number: number) => Program.start(host, number, UNPRIVILEGED);
  const start = (count: number) => Promise.all(Array.from({ length: count }, (_, i) => serve(i)));

  test('connect in all pairs, and nothing that is for one reaches another', async () => {
    const programs = await start(4);
    await Promise.all(programs.map((each) => each.talkTo(programs, ADDRESSES)));
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0, drops: 0 });
  });

  test('keep their connections when the broker is killed, and others can join the next one', async () => {
    const programs = await start(3);
    await Promise.all(programs.map((each) => each.talkTo(programs, ADDRESSES)));
    const [first] = programs as [Program];
    for (let k = 0; k < 80; k++) {
      const pid = (await first.call('brokerPid')) as number;
      process.kill(pid, 'SIGKILL');
      await eventually(async () => expect([0, pid]).not.toContain(await first.call('brokerPid')));
      await Promise.all(programs.map((each) => each.goesOn()));
    }
    const late = await serve(3);
    await late.talkTo(programs, ADDRESSES);
    await first.talkTo([late], ADDRESSES);
    await late.goesOn();
    for (const each of [...programs, late])
      expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0, drops: 0, fatal: null });
  });

  test('keep their connections when others and the broker are killed, and slots are lent again', async () => {
    const result = await churn({
      ...{ stay: 2, addresses: ADDRESSES, random: new Random(42), brokerKills: 1 },
      start: serve,
      goesOn: (rounds) => rounds < 6,
    });
    expect(result).toMatchObject({ wrong: 0, ended: 0, failed: [] });
  });

  test('keep their sockets when devices of another address have the same slots, the broker is killed, and they end', async () => {
    const on = (address: string) => ({ ...LOOPBACK, addresses: [address] });
    const open = async (numbers: readonly [number, number], address: string) => {
      const pair: Program[] = [];
      for (const number of numbers) pair.push(await Program.serve(host, number, on(address), UNPRIVILEGED));
      const [a, b] = pair as [Program, Program];
      await a.talkTo([b], [address]);
      return [a, b] as const;
    };
    const slotsOf = (pair: readonly Program[]) => Promise.all(pair.map((each) => each.call('slot')));
    const staying = await open([0, 1], '127.0.0.1');
    const filler = await launch(2);
    expect(await filler.call('joinMany', 253, '127.0.0.9')).toEqual({ joined: 253 });
    const ending = await open([3, 4], '127.0.0.3');
    expect(await slotsOf(ending)).toEqual(await slotsOf(staying));
    const pid = (await filler.call('brokerPid')) as number;
    process.kill(pid, 'SIGKILL');
    await eventually(async () => expect([0, pid]).not.toContain(await filler.call('brokerPid')));
    for (const each of [staying[0], ending[0]]) await each.goesOn();
    for (const each of ending) await each.child.stop();
    await filler.call('sleep', 500);
    await staying[0].goesOn();
    expect(await staying[0].counts()).toMatchObject({ wrong: 0, ended: 0, fatal: null });
  });

  test('keep slot and connections while their event loop is busy and the broker is replaced', async () => {
    const [busy, other] = (await start(2)) as [Program, Program];
    await busy.talkTo([other], ADDRESSES);
    await busy.goesOn();
    const pid = (await other.call('brokerPid')) as number;
    const blocked = busy.call('block', 2000);
    process.kill(pid, 'SIGKILL');
    const late = await serve(2);
    await late.talkTo([other], ADDRESSES);
    await blocked;
    await busy.goesOn();
    await late.talkTo([busy], ADDRESSES);
    for (const each of [busy, other, late]) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0 });
  });

  test('get EADDRINUSE for a port of another one, and ECONNREFUSED where nobody listens', async () => {
    const [one, two] = (await start(2)) as [Program, Program];
    expect(await two.call('listen', one.port)).toMatch(/EADDRINUSE.*another device on this host/);
    expect(await two.call('talk', '127.0.0.1', 7999)).toMatch(/ECONNREFUSED.*no listener/);
  });

  test('fail with DEVICE_FATAL when a broker does not know their slot', async () => {
    const [one, two] = (await start(2)) as [Program, Program];
    await one.talkTo([two], ADDRESSES);
    const fake = await launch(2);
    const pid = (await one.call('brokerPid')) as number;
    process.kill(pid, 'SIGSTOP');
    process.kill(pid, 'SIGKILL');
    await eventually(async () => {
      await fake.call('answer', 'ENOENT', 'the broker does not know slot 1');
      expect((await one.counts()).fatal).toMatch(/does not know slot/);
    });
  });

  test('are refused by a broker that does not admit them, and take a port of their own where it is free', async () => {
    const refusing = await launch(0);
    await refusing.call('refuse');
    const [one, two] = [await launch(1), await launch(2)];
    const opened = await one.call('open', { ...LOOPBACK, addresses: ['127.0.0.1'] });
    expect(opened).toEqual({ slot: 0, notes: [expect.stringMatching(/is not shared .*does not admit user 0/)] });
    const taken = await two.call('open', { ...LOOPBACK, addresses: ['127.0.0.1'] });
    expect(taken).toEqual({
      error: expect.stringMatching(/^EADDRINUSE: UDP port.*the broker does not help: .*admit user 0/),
    });
  });

  const openScript = `
    import { openDevice } from "${new URL('../../dist/index.js', import.meta.url)}";
    const device = await openDevice({ link: "udp", interface: "lo", addresses: ["127.0.0.1"] });
    const notes = device.notes.filter((note) => note.includes("UDP port"));
    console.log(JSON.stringify({ slot: device.link.sharedPort?.slot ?? 0, notes }));
    await device.close();`;
  /** Opens a device in a process of its own. @returns its slot, and the notes about its port */
  const openBy = (before: string, ...flags: string[]) =>
    JSON.parse(
      host.sh(`${before} "${process.execPath}" ${flags.join(' ')} --input-type=module -e '${openScript}' 2>/dev/null`),
    );

  test('take a port of their own where Node may start no process, and say so', () => {
    const { allowedNodeEnvironmentFlags: known } = process;
    const permission = known.has('--permission') ? '--permission' : '--experimental-permission';
    expect(openBy('', permission, '--allow-addons', '--allow-fs-read=/')).toEqual({
      slot: 0,
      notes: [expect.stringMatching(/is not shared .*the broker cannot be started: Access to this API/)],
    });
  });

  test('share their port in a system that is read-only', () => {
    const readOnly =
      'mount --make-rprivate /; mount -o remount,bind,ro /; if touch /wasm-roce; then exit 1; fi; exec "$@"';
    expect(openBy(`unshare --mount sh -ec '${readOnly}' sh`)).toEqual({
      slot: expect.any(Number),
      notes: [expect.stringMatching(/is shared with other programs: slot [1-9]/)],
    });
  });

  test('are refused by a broker of another version, whose error names both', async () => {
    const other = await launch(0);
    await other.call('answer', 'EOPNOTSUPP', 'the broker speaks version 9, and the program version 1');
    const one = await launch(1);
    const opened = await one.call('open', { ...LOOPBACK, addresses: ['127.0.0.1'] });
    expect(opened).toMatchObject({ slot: 0, notes: [expect.stringMatching(/version 9, and the program version 1/)] });
  });

  test('get an error from a broker that does not reply: they take no port of their own', async () => {
    const silent = await launch(0);
    await silent.call('answer', 'ETIMEDOUT', 'the broker (pid 1) does not reply within 10 s');
    const one = await launch(1);
    const opened = await one.call('open', { ...LOOPBACK, addresses: ['127.0.0.1'] });
    expect(opened).toEqual({ error: expect.stringMatching(/^ETIMEDOUT: the broker \(pid 1\) does not reply/) });
  });

  test('are at most 255 devices of an address: the next one gets ENOSPC with the limit', async () => {
    const [one, two] = [await launch(0), await launch(1)];
    const joined = await one.call('joinMany', 256, '127.0.0.1');
    expect(joined).toEqual({ joined: 255, error: expect.stringMatching(/^ENOSPC: 255 devices.* 127\.0\.0\.1 /) });
    expect(await two.call('joinMany', 1, '127.0.0.1')).toMatchObject({ joined: 0 });
    expect(await two.call('joinMany', 255, '127.0.0.2')).toEqual({ joined: 255 });
    await one.child.kill();
    await eventually(async () => expect(await two.call('joinMany', 1, '127.0.0.1')).toEqual({ joined: 1 }));
  });

  test('get their packets again when one of them has removed the steering', async () => {
    const programs = await start(4);
    await Promise.all(programs.map((each) => each.talkTo(programs, ADDRESSES)));
    const [hostile] = programs as [Program];
    for (const address of ADDRESSES) await hostile.call('detach', address);
    // what a wrong program receives meanwhile is for none of its queue pairs
    for (const each of programs.slice(1)) await each.goesOn();
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0 });
  });

  test('are served when a broker without file descriptors has some again', async () => {
    const broker = host.start(MAIN, ['broker', '-q']);
    await eventually(() => expect(host.sh('cat /proc/net/unix')).toContain('@wasm-roce/broker\n'));
    const [one, two] = [await launch(1), await launch(2)] as const;
    const pid = await two.call('brokerPid');
    const descriptors = () => readdirSync(`/proc/${pid}/fd`).length;
    const limit = descriptors() + 30;
    host.sh(`prlimit --pid ${pid} --nofile=${limit}:${limit}`);
    const joining = one.call('joinMany', 40, '127.0.0.3').catch(() => null);
    const all = eventually(() => expect(descriptors()).toBe(limit));
    // it waits to be accepted, or is refused
    const refused = await Promise.race([joining, all.then(() => undefined)]);
    if (refused) expect(refused.error).toContain('(EMFILE)');
    await one.child.kill();
    // the broker closes what the program had as it hears of its end
    await eventually(async () => expect(await two.call('joinMany', 3, '127.0.0.3')).toEqual({ joined: 3 }));
    await broker.kill();
  });

  test('of three users come and go, and no connection of those that stay ends', async () => {
    const broker = host.start(MAIN, ['broker', '-q', ...OTHERS.flatMap((id) => ['--allow', `${id}`])]);
    const users = [0, ...OTHERS];
    await eventually(() => expect(host.sh('cat /proc/net/unix')).toContain('@wasm-roce/broker\n'));
    const result = await churn({
      ...{ stay: 5, addresses: ADDRESSES, random: new Random(7), brokerKills: 0 },
      start: (number) => {
        const user = users[number % users.length];
        return Program.serve(host, number, LOOPBACK, user === 0 ? UNPRIVILEGED : [], user);
      },
      goesOn: (rounds) => rounds < 6,
    });
    await broker.kill();
    expect(result).toMatchObject({ wrong: 0, ended: 0, failed: [] });
  });

  test('use a broker that a service manager has started with a socket', async () => {
    const manager = await launch(0);
    await manager.call('activate', MAIN);
    const programs = [await serve(1), await serve(2)] as const;
    await programs[0].talkTo([programs[1]], ADDRESSES);
    await programs[0].goesOn();
    // the kernel tells who listens: no program has started a broker
    expect(await programs[0].call('brokerPid')).toBe(await manager.call('pid'));
  });

  test('start a broker that ends when it has been unused for some seconds', async () => {
    const [one] = (await start(1)) as [Program];
    const watcher = await launch(1);
    const pid = (await watcher.call('brokerPid')) as number;
    expect(pid).toBeGreaterThan(0);
    await one.child.stop();
    await eventually(() => expect(isRunning(pid)).toBe(false));
  });
});
