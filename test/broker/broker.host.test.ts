// Programs that share addresses through the broker: separate processes in a network namespace of their own.
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { Random } from '../kit/random.js';
import { type ChildProgram, PeerNamespace } from '../link/netns.js';
import type { CALLS } from './program.js';

const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url));
/** Without capabilities, but still root: another user may not be allowed to read the project. */
const UNPRIVILEGED = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];
const ADDRESSES = ['127.0.0.1', '::1'];
const PORT = 7600;

type Calls = typeof CALLS;

/** A program in the namespace. */
class Program {
  private constructor(
    readonly child: ChildProgram,
    readonly port: number,
  ) {}

  static async start(host: PeerNamespace, number: number): Promise<Program> {
    const child = host.start(PROGRAM, [], UNPRIVILEGED);
    expect(await child.line()).toBe('ready');
    return new Program(child, PORT + number);
  }

  /** Starts a program that has opened a device, and serves on its port. */
  static async serve(host: PeerNamespace, number: number): Promise<Program> {
    const program = await Program.start(host, number);
    const opened = await program.call('open', ADDRESSES);
    expect(opened).toMatchObject({ slot: expect.toSatisfy((slot: number) => slot > 0) });
    expect(await program.call('listen', program.port)).toBeNull();
    return program;
  }

  async call<Name extends keyof Calls>(name: Name, ...call: Parameters<Calls[Name]>) {
    const line = await this.child.request(JSON.stringify([name, ...call]));
    return JSON.parse(line) as Awaited<ReturnType<Calls[Name]>> | null;
  }

  async counts() {
    const counts = await this.call('counts');
    if (counts === null) throw new Error('no counts');
    return counts;
  }

  /** Waits until the program has exchanged other messages. */
  async goesOn(): Promise<void> {
    const before = await this.counts();
    await eventually(async () => expect((await this.counts()).echoes).toBeGreaterThan(before.echoes + 5));
  }

  /** Talks with each of the others, by IPv4 and IPv6 in turn. */
  async talkTo(others: readonly Program[]): Promise<void> {
    for (const [i, { port }] of others.entries())
      if (port !== this.port) expect(await this.call('talk', ADDRESSES[i % 2] as string, port)).toBeNull();
  }
}

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

  const start = (count: number) => Promise.all(Array.from({ length: count }, (_, i) => Program.serve(host, i)));

  test('connect in all pairs, and nothing that is for one reaches another', async () => {
    const programs = await start(4);
    await Promise.all(programs.map((each) => each.talkTo(programs)));
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0, drops: 0 });
  });

  test('keep their connections when the broker is killed, and others can join the next one', async () => {
    const programs = await start(3);
    await Promise.all(programs.map((each) => each.talkTo(programs)));
    const [first] = programs as [Program];
    for (let k = 0; k < 10; k++) {
      const pid = (await first.call('brokerPid')) as number;
      process.kill(pid, 'SIGKILL');
      await eventually(async () => expect([0, pid]).not.toContain(await first.call('brokerPid')));
      await Promise.all(programs.map((each) => each.goesOn()));
    }
    const late = await Program.serve(host, 3);
    await late.talkTo(programs);
    await first.talkTo([late]);
    await late.goesOn();
    for (const each of [...programs, late])
      expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0, drops: 0, fatal: null });
  });

  test('keep their connections when others are killed, whose slots are lent again', async () => {
    const random = new Random(42);
    const [one, two, ...victims] = await start(4);
    const survivors = [one, two] as [Program, Program];
    await survivors[0].talkTo([survivors[1]]);
    await survivors[1].talkTo([survivors[0]]);
    for (let k = 0; k < 6; k++) {
      const victim = victims.splice(random.below(victims.length), 1)[0] as Program;
      await victim.talkTo(survivors);
      const pid = (await survivors[0].call('brokerPid')) as number;
      const isBrokerToo = random.below(2) === 0;
      if (isBrokerToo) process.kill(pid, 'SIGKILL');
      await victim.child.kill();
      victims.push(await Program.serve(host, 4 + k));
      await Promise.all([...survivors, ...victims].map((each) => each.counts()));
      await Promise.all(survivors.map((each) => each.goesOn()));
    }
    for (const each of survivors) expect(await each.counts()).toMatchObject({ wrong: 0, fatal: null });
    // each connection of a victim has ended, and none of a survivor
    expect((await survivors[0].counts()).ended).toBeLessThanOrEqual(6);
  });

  test('keep slot and connections while their event loop is busy and the broker is replaced', async () => {
    const [busy, other] = (await start(2)) as [Program, Program];
    await busy.talkTo([other]);
    await busy.goesOn();
    const pid = (await other.call('brokerPid')) as number;
    const blocked = busy.call('block', 2000);
    process.kill(pid, 'SIGKILL');
    const late = await Program.serve(host, 2);
    await late.talkTo([other]);
    await blocked;
    await busy.goesOn();
    await late.talkTo([busy]);
    for (const each of [busy, other, late]) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0 });
  });

  test('get EADDRINUSE for a port of another one, and ECONNREFUSED where nobody listens', async () => {
    const [one, two] = (await start(2)) as [Program, Program];
    expect(await two.call('listen', one.port)).toMatch(/EADDRINUSE.*another device on this host/);
    expect(await two.call('talk', '127.0.0.1', 7999)).toMatch(/ECONNREFUSED.*no listener/);
  });

  test('fail with DEVICE_FATAL when a broker does not know their slot', async () => {
    const [one, two] = (await start(2)) as [Program, Program];
    await one.talkTo([two]);
    const fake = await Program.start(host, 2);
    const pid = (await one.call('brokerPid')) as number;
    process.kill(pid, 'SIGSTOP');
    process.kill(pid, 'SIGKILL');
    await eventually(async () => {
      await fake.call('answer', 'ENOENT', 'the broker does not know slot 1');
      expect((await one.counts()).fatal).toMatch(/does not know slot/);
    });
  });

  test('are refused by a broker that does not admit them, and take a port of their own where it is free', async () => {
    const refusing = await Program.start(host, 0);
    await refusing.call('refuse');
    const [one, two] = [await Program.start(host, 1), await Program.start(host, 2)];
    const opened = await one.call('open', ['127.0.0.1']);
    expect(opened).toEqual({ slot: 0, notes: [expect.stringMatching(/is not shared .*does not admit user 0/)] });
    const taken = await two.call('open', ['127.0.0.1']);
    expect(taken).toEqual({
      error: expect.stringMatching(/^EADDRINUSE: UDP port.*the broker does not help: .*admit user 0/),
    });
  });

  test('are refused by a broker of another version, whose error names both', async () => {
    const other = await Program.start(host, 0);
    await other.call('answer', 'EOPNOTSUPP', 'the broker speaks version 9, and the program version 1');
    const one = await Program.start(host, 1);
    const opened = await one.call('open', ['127.0.0.1']);
    expect(opened).toMatchObject({ slot: 0, notes: [expect.stringMatching(/version 9, and the program version 1/)] });
  });

  test('are at most 255 devices: the next one gets ENOSPC with the limit', async () => {
    const [one, two] = [await Program.start(host, 0), await Program.start(host, 1)];
    const joined = await one.call('joinMany', 256);
    expect(joined).toEqual({ joined: 255, error: expect.stringMatching(/^ENOSPC: 255 devices/) });
    await one.child.kill();
    await eventually(async () => expect(await two.call('joinMany', 1)).toEqual({ joined: 1 }));
  });

  test('start a broker that ends when it has been unused for some seconds', async () => {
    const [one] = (await start(1)) as [Program];
    const watcher = await Program.start(host, 1);
    const pid = (await watcher.call('brokerPid')) as number;
    expect(pid).toBeGreaterThan(0);
    await one.child.stop();
    await eventually(() => expect(isRunning(pid)).toBe(false));
  });
});
