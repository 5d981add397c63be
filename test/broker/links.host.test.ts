// Programs on one host by different links: separate processes in a network namespace of their own, and others on a
// second host, which reaches them by Ethernet.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { OpenOptions } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege, testIf, xdpPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { Program, UNPRIVILEGED } from './programs.js';

const NET = 176;
/** Addresses of the second host, which has the namespace of this process, and of the host with the programs. */
const FAR = [`10.${NET}.0.1`, `fd00:${NET}::1`];
const NEAR = [`10.${NET}.0.2`, `fd00:${NET}::2`];
const PACKET: OpenOptions = { link: 'packet', interface: 'brlb' };
const XDP: OpenOptions = { link: 'xdp', interface: 'brlb' };
const UDP: OpenOptions = { link: 'udp', interface: 'brlb' };

const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'), programPrivilege('setpriv'));

describeIf(privilege, 'programs of one host', () => {
  let host: PeerNamespace;
  const far: Program[] = [];
  beforeEach(async () => {
    host = await PeerNamespace.open('brl', NET);
  });
  afterEach(async () => {
    for (const program of far.splice(0)) await program.child.stop();
    host.close();
  });

  /** Starts programs with these options, in this order. */
  const serve = (...options: readonly OpenOptions[]) =>
    Promise.all(options.map((each, i) => Program.serve(host, i, each, each.link === 'udp' ? UNPRIVILEGED : [])));

  /** Starts a program on the second host. */
  async function serveFar(): Promise<Program> {
    const program = await Program.start(undefined, 50);
    far.push(program);
    await program.call('open', { link: 'packet', interface: 'brla', broker: false });
    expect(await program.call('listen', program.port)).toBeNull();
    return program;
  }

  // A packet socket also gets packets with a UDP checksum that are for others: they may have been coalesced with its
  // own.
  const isQuiet = { wrong: 0, ended: 0, fatal: null };

  /** Lets all programs of this host talk with each other, and with one of the second host. @returns that one */
  async function allMeet(programs: readonly Program[]): Promise<Program> {
    const other = await serveFar();
    await Promise.all(programs.map((each) => each.talkTo(programs, NEAR)));
    await Promise.all(programs.map((each) => each.talkTo([other], FAR)));
    await other.talkTo(programs, NEAR);
    await Promise.all([...programs, other].map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject(isQuiet);
    return other;
  }

  test('connect in all pairs of the links packet and udp, and to another host, from which all are reached', async () => {
    const programs = await serve(PACKET, UDP, PACKET, UDP, { ...PACKET, mode: 'worker' });
    await allMeet(programs);
    for (const k of [1, 3]) expect(await programs[k]?.counts()).toMatchObject({ drops: 0 });
  });

  testIf(xdpPrivilege(), 'connect in all pairs with the link xdp, on one host and from another one', async () => {
    const programs = await serve(UDP, XDP, PACKET);
    const other = await allMeet(programs);
    expect(await programs[0]?.counts()).toMatchObject({ drops: 0 });
    // its last frames, by loopback and by Ethernet, end its connections
    await programs[1]?.child.stop();
    for (const each of [programs[0] as Program, other])
      await eventually(async () => expect(await each.counts()).toMatchObject({ ended: 1, left: 1 }));
  });

  testIf(xdpPrivilege(), 'connect by the link xdp in a thread of its own', async () => {
    const programs = await serve(UDP, { ...XDP, mode: 'worker' });
    await Promise.all(programs.map((each) => each.talkTo(programs, NEAR)));
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject({ ...isQuiet, drops: 0 });
  });

  test('meet by the loopback addresses, whatever their links', async () => {
    const on = { interface: 'lo', addresses: ['127.0.0.1', '::1'] };
    const programs = await serve({ ...on, link: 'packet' }, { ...on, link: 'udp' }, { ...on, link: 'packet' });
    await Promise.all(programs.map((each) => each.talkTo(programs, on.addresses)));
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject(isQuiet);
  });

  test('meet by the address of another interface', async () => {
    host.sh(
      'ip link add brl2 type veth peer name brl3; ip link set brl3 up; ip link set brl2 up; ip addr add 10.175.0.1/24 dev brl2',
    );
    const programs = await serve({ link: 'packet', interface: 'brl2' }, PACKET, UDP);
    const [first, ...others] = programs as [Program, Program, Program];
    await Promise.all(others.map((each) => each.talkTo([first], ['10.175.0.1'])));
    await first.talkTo(others, [NEAR[0] as string]);
    await Promise.all(programs.map((each) => each.goesOn()));
    for (const each of programs) expect(await each.counts()).toMatchObject(isQuiet);
  });

  test('refuse a connection at once where nobody listens, from this host and from another one', async () => {
    const [one, two] = (await serve(PACKET, UDP)) as [Program, Program];
    const other = await serveFar();
    for (const each of [one, two, other])
      expect(await each.call('talk', NEAR[0] as string, 7999)).toMatch(/ECONNREFUSED.*no listener/);
    // the others of the host go on when the program that refuses has ended
    await one.child.kill();
    for (const each of [two, other])
      expect(await each.call('talk', NEAR[0] as string, 7999)).toMatch(/ECONNREFUSED.*no listener/);
  });

  test('keep their connections when the broker and others are killed', async () => {
    const [one, two, victim] = (await serve(PACKET, UDP, PACKET)) as [Program, Program, Program];
    const other = await serveFar();
    await one.talkTo([two], NEAR);
    await one.talkTo([other], FAR);
    await two.talkTo([one, victim], NEAR);
    await other.talkTo([one, two], NEAR);
    for (let k = 0; k < 5; k++) {
      const pid = (await one.call('brokerPid')) as number;
      process.kill(pid, 'SIGKILL');
      await eventually(async () => expect([0, pid]).not.toContain(await one.call('brokerPid')));
      await Promise.all([one, two, other].map((each) => each.goesOn()));
    }
    // its last frame, by loopback, ends the connection
    await victim.child.stop();
    await eventually(async () => expect((await two.counts()).ended).toBe(1));
    await Promise.all([one, two, other].map((each) => each.goesOn()));
    for (const each of [one, two, other]) expect(await each.counts()).toMatchObject({ wrong: 0, fatal: null });
  });

  test.each(['packet', 'xdp'] as const)(
    'have sockets of their own where another one has the port: %s',
    async (link) => {
      const [other, program] = [await Program.start(host, 0), await Program.start(host, 1)];
      await other.call('occupy', NEAR[0] as string);
      const opened = await program.call('open', { link, interface: 'brlb' });
      expect(opened).toMatchObject({
        slot: 0,
        notes: expect.arrayContaining([expect.stringMatching(/is taken by an rxe/)]),
      });
      expect(await program.call('listen', program.port)).toBeNull();
      const far = await serveFar();
      await far.talkTo([program], NEAR);
      await far.goesOn();
    },
  );

  test('get their packets also when a device without the broker has opened the same addresses', async () => {
    const first = await Program.serve(host, 0, UDP, UNPRIVILEGED);
    const alone = await Program.start(host, 9);
    expect(await alone.call('open', { ...PACKET, broker: false })).toMatchObject({ slot: 0 });
    const late = await Program.serve(host, 1, UDP, UNPRIVILEGED);
    await alone.call('close');
    await first.talkTo([late], NEAR);
    await late.talkTo([first], NEAR);
    await Promise.all([first, late].map((each) => each.goesOn()));
    for (const each of [first, late]) expect(await each.counts()).toMatchObject({ ...isQuiet, drops: 0 });
  });
});
