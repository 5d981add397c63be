// Control of running programs through the broker: their state, rules of faults and events of the host.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import type { OpenOptions } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { Program, UNPRIVILEGED } from './programs.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const NOBODY = 65534;
const ADDRESSES = ['127.0.0.1', '::1'];
const LOOPBACK: OpenOptions = { link: 'udp', interface: 'lo', addresses: ADDRESSES };

const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'), programPrivilege('setpriv'));

describeIf(privilege, 'a controller of the programs on one address', () => {
  let host: PeerNamespace;
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  beforeEach(async () => {
    host = await PeerNamespace.open('ctl', 198);
  });
  afterEach(() => host.close());

  const serve = (number: number, options = LOOPBACK) => Program.serve(host, number, options, UNPRIVILEGED);
  /**
   * Runs a command of ours in the namespace, without the devices that other tests publish. @returns its output, with
   * that on stderr
   */
  const run = (...args: string[]) =>
    host.sh(`XDG_RUNTIME_DIR="${folder}" "${process.execPath}" --import tsx "${MAIN}" ${args.join(' ')} 2>&1`);
  const pidOf = async (program: Program) => (await program.call('pid')) as number;

  /** Two programs that talk with each other, both ways. */
  async function talking(options?: OpenOptions): Promise<[Program, Program]> {
    const programs = [await serve(1, options), await serve(2, options)] as [Program, Program];
    await Promise.all(programs.map((each) => each.talkTo(programs, ADDRESSES)));
    return programs;
  }

  test('reads pid, command, queue pairs and counters of each program', async () => {
    const programs = await talking();
    const stats = JSON.parse(run('stat', '--json')) as { pid: number; command: string; qps: unknown[]; slot: number }[];
    for (const each of programs) {
      const pid = await pidOf(each);
      const stat = stats.find((found) => found.pid === pid);
      expect(stat).toMatchObject({ command: expect.stringContaining('program.ts'), slot: await each.call('slot') });
      expect(stat?.qps.length).toBeGreaterThan(1);
    }
    expect(stats.map(({ pid }) => pid).sort()).toEqual((await Promise.all(programs.map(pidOf))).sort());
    const metrics = run('stat', '--prometheus');
    for (const each of programs) expect(metrics).toMatch(new RegExp(`program_info\\{.*pid="${await pidOf(each)}"`));
    expect(metrics).toContain('wasm_roce_qp_sent_pkts_total{');
  });

  test.each([
    ['inline', LOOPBACK],
    ['worker', { ...LOOPBACK, mode: 'worker' }],
  ] as const)(
    'stops the packets of one program until the command ends, also by SIGKILL: mode %s',
    async (_, options) => {
      const programs = await talking(options);
      const pid = await pidOf(programs[0]);
      const rule = 'drop every * received, always';
      for (const [id, more] of [
        [1, ['--for', '1']],
        [2, []],
      ] as const) {
        const fault = host.start(MAIN, ['fault', '--pid', `${pid}`, ...more, rule]);
        expect(await fault.line()).toMatch(
          new RegExp(`^process ${pid}, wasm-lo, rule ${id}: drop every \\* received, always`),
        );
        const before = await programs[0].counts();
        await new Promise((resolve) => setTimeout(resolve, 300));
        expect((await programs[0].counts()).echoes - before.echoes).toBeLessThan(2);
        if (id === 1) expect(await fault.line()).toMatch(/\([1-9]\d* hits?\)$/);
        await fault.kill();
        await programs[0].goesOn();
      }
      for (const each of programs) expect(await each.counts()).toMatchObject({ wrong: 0, ended: 0 });
    },
  );

  test('keeps, lists and removes rules', async () => {
    const programs = await talking();
    const rule = 'mark ECN 50 % of SEND_ONLY';
    const kept = JSON.parse(run('fault', '--keep', '--json', '--seed', '9', `'${rule}'`)) as {
      pid: number;
      id: number;
    }[];
    expect(kept.map(({ pid }) => pid).sort()).toEqual((await Promise.all(programs.map(pidOf))).sort());
    await eventually(() => {
      const listed = JSON.parse(run('fault', '--list', '--json')) as { hits: number; rule: string; seed: number }[];
      expect(listed).toMatchObject([
        { rule, seed: 9, id: 1 },
        { rule, seed: 9, id: 1 },
      ]);
      for (const { hits } of listed) expect(hits).toBeGreaterThan(0);
    });
    expect(JSON.parse(run('fault', '--remove', '1', '--pid', `${await pidOf(programs[0])}`, '--json'))).toHaveLength(1);
    expect(run('fault', '--list').trim().split('\n')).toHaveLength(1);
    run('fault', '--remove', 'all');
    expect(run('fault').trim()).toBe('no rule of faults is in force');
    await Promise.all(programs.map((each) => each.goesOn()));
  });

  test('takes the port of a program down for a time, and makes a device fail', async () => {
    const [one, other] = await talking();
    const pid = await pidOf(one);
    expect(run('fault', '--pid', `${pid}`, '--for', '0.3', "'port down'")).toContain('rule 1: port down (0 hits)');
    const events = (await one.call('events')) as string[];
    expect(events.filter((type) => type.startsWith('PORT_'))).toEqual(['PORT_ERR', 'PORT_ACTIVE']);
    await Promise.all([one.goesOn(), other.goesOn()]);
    run('fault', '--pid', `${pid}`, '--keep', "'device failure'");
    expect((await one.counts()).fatal).toContain("the rule of faults 'device failure'");
    // a failed device acknowledges nothing
    const before = await other.counts();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await other.counts()).echoes - before.echoes).toBeLessThan(2);
  });

  test('leaves out a program whose replies are no lines of JSON, have a wrong shape or no end', async () => {
    const program = await serve(1);
    const hostile = await Program.start(host, 2, UNPRIVILEGED);
    const replies = [
      'no JSON\n',
      'null\n',
      '{"id":1}\n',
      '{"id":1,"result":{"addresses":[1],"qps":[],"counters":{}}}\n',
      '{"id":1,"result":{"device":"x","command":"x","interface":"x","link":"x","state":"x","addresses":[],"qps":[{}],"counters":{}}}\n',
    ];
    for (const reply of replies) await hostile.call('answerControl', '127.0.0.1', reply);
    await hostile.call('answerControl', '127.0.0.1');
    const pid = await pidOf(program);
    expect(JSON.parse(run('stat', '--json'))).toEqual([expect.objectContaining({ pid })]);
    expect(run('fault', '--list').trim()).toBe('no rule of faults is in force');
    expect(JSON.parse(run('fault', '--json', '--keep', "'drop the 5th ACK'"))).toEqual([
      expect.objectContaining({ pid }),
    ]);
  });

  test('is refused with the reason for a wrong rule, an absent program, and a user without the right', async () => {
    const fails = (...args: string[]) => {
      try {
        run(...args);
      } catch (error) {
        return (error as { stdout: string }).stdout;
      }
      return 'nothing';
    };
    expect(fails('fault', "'drop every *'")).toContain(
      'no program has such a device; those that share addresses here: none',
    );
    const broker = host.start(MAIN, ['broker', '-q', '--allow', `${NOBODY}`]);
    await eventually(() => expect(host.sh('cat /proc/net/unix')).toContain('@wasm-roce/broker\n'));
    const program = await Program.serve(host, 3, LOOPBACK, [], NOBODY);
    expect(fails('fault', "'drop evry *'")).toContain('drop evry *');
    expect(fails('fault', '--pid', '1', "'drop every *'")).toContain(`process ${await pidOf(program)} (`);
    expect(fails('fault', '--list', "'drop every *'")).toContain('--list and --remove take no rules');
    // the program is another user's, whom the broker admits: it may use the broker, and not control others
    expect(await program.call('control')).toContain(`user ${NOBODY} may not control its programs`);
    expect(JSON.parse(run('stat', '--json'))).toHaveLength(1);
    await broker.kill();
  });
});
