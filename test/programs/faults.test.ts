// Rules of faults on programs of the library: `wasm-roce run --fault`, and `wasm-roce fault` while they run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DeviceStat } from '../../src/index.js';
import { type Ended, type Running, start } from '../cli/run.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { compileEvents } from './compiled.js';
import { built, type Host, launch, listening, programOf } from './ends.js';

const COMMANDS = ['ib_write_bw', 'gcc', 'nsenter', 'setpriv'];
/** A message of 64 packets at the MTU of Ethernet. */
const BYTES = 65_536;
const NET = 204;
const ADDRESS = `10.${NET}.0.2`;

describeIf(
  all(built, netPrivilege(), ...COMMANDS.map(programPrivilege)),
  'rules of faults on a program of the library',
  () => {
    let namespace: PeerNamespace;
    let near: Host;
    let far: Host;
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-faults-'));
    let lastPort = 19_900;
    beforeAll(async () => {
      namespace = await PeerNamespace.open('prf', NET);
      near = { interface: namespace.near, enter: ['env'] };
      far = { interface: namespace.far, enter: ['nsenter', ...namespace.enter] };
    });
    afterAll(() => {
      namespace.close();
      rmSync(folder, { recursive: true });
    });

    /** Runs ib_write_bw between two hosts. @param options of the client's `run` */
    async function write(
      options: readonly string[],
      { words = ['-n', '50'], gid = 1, from = near } = {},
    ): Promise<{ readonly server: Running; readonly client: Running }> {
      const port = ++lastPort;
      const perftest = ['ib_write_bw', '-F', '-p', `${port}`, '-x', `${gid}`, '-s', `${BYTES}`, ...words];
      const server = launch(far, perftest, ['--report', '-']);
      await listening(server, port);
      return { server, client: launch(from, [...perftest, ADDRESS], ['--report', '-', ...options]) };
    }

    async function ends({
      server,
      client,
    }: {
      readonly server: Running;
      readonly client: Running;
    }): Promise<[Ended, Ended]> {
      const [served, ended] = await Promise.all([server.ended, client.ended]);
      expect(ended, ended.stderr).toMatchObject({ status: 0 });
      expect(served, served.stderr).toMatchObject({ status: 0 });
      return [served, ended];
    }

    /** Runs a command of ours on the far host. */
    const control = (...args: string[]) => start(args, { prefix: far.enter });
    /** Returns the NAKs that all programs have received, and the packets that they have sent. */
    function total(stats: readonly DeviceStat[]): { readonly naks: number; readonly sent: number } {
      const sum = (name: string) => stats.reduce((all, { counters }) => all + (counters[name] ?? 0), 0);
      return { naks: sum('rcvd_seq_err'), sent: sum('sent_pkts') };
    }
    const counter = ({ stderr }: Ended, name: string) => Number(new RegExp(` ${name} (\\d+)`).exec(stderr)?.[1] ?? 0);

    test.each([
      ['drop the 5th WRITE_MIDDLE', 'client', 'rcvd_seq_err', 1],
      ['drop the 5th to 6th WRITE_LAST', 'server', 'rx_write_requests', 50],
      ['corrupt the 3rd WRITE_LAST', 'server', 'drop_icrc', 1],
      ['duplicate the 3rd WRITE_LAST', 'server', 'duplicate_request', 1],
      ['rewrite tver=1 in the 2nd WRITE_FIRST', 'server', 'drop_transport_version', 1],
      ['corrupt the 3rd ACK received', 'client', 'drop_icrc', 1],
    ] as const)('%s: the %s counts %s, and the program completes', async (rule, end, name, count) => {
      const [served, ended] = await ends(await write(['--fault', rule]));
      expect(counter(end === 'client' ? ended : served, name)).toBeGreaterThanOrEqual(count);
      expect(ended.stderr).toContain('rules of faults that have hit no packet: none');
    });

    test('two runs with the same seed drop as many packets of the same traffic by IPv6', async () => {
      const rule = ['--fault', 'drop 2 % of WRITE_MIDDLE', '--seed', '7'];
      const once = ['--ipv6', '-n', '5', '-t', '1'];
      const counts: number[] = [];
      for (let i = 0; i < 2; i++) {
        const [, ended] = await ends(await write(rule, { words: once, gid: 2 }));
        counts.push(counter(ended, 'rcvd_seq_err'));
      }
      expect(counts[0]).toBeGreaterThan(0);
      expect(counts[1]).toBe(counts[0]);
    });

    test('a rule that has hit no packet is named on stderr and in the report', async () => {
      const rule = 'drop the 5th SEND_MIDDLE';
      const [, { stderr }] = await ends(await write(['--fault', rule]));
      expect(stderr).toMatch(new RegExp(`the rule of faults '${rule}' has hit no packet of process \\d+`));
      expect(stderr).toContain(`rules of faults that have hit no packet: ${rule}`);
    });

    test('wasm-roce stat and wasm-roce fault reach the program while it runs', async () => {
      const { server, client } = await write([], { words: ['--run_infinitely'], from: far });
      const stats = async (): Promise<DeviceStat[]> => JSON.parse((await control('stat', '--json').ended).stdout);
      const inForce = async () => (await control('fault', '--list').ended).stdout;
      await eventually(async () => {
        const states = (await stats()).flatMap(({ qps }) => qps.map(({ state }) => state));
        // perftest's server of WRITEs stays in RTR
        expect(states.sort()).toEqual(['RTR', 'RTS']);
      });
      for (const stat of await stats())
        expect(stat).toMatchObject({
          device: 'wroce0',
          command: expect.stringContaining('ib_write_bw'),
          addresses: expect.arrayContaining([ADDRESS]),
          qps: [{ type: 'RC', peer: { address: ADDRESS } }],
        });
      const { stdout } = await control('fault', '--for', '1', 'drop 1 % of WRITE_MIDDLE').ended;
      expect(stdout).toMatch(/\([1-9]\d* hits\)/);
      expect(await inForce()).toBe('no rule of faults is in force\n');
      const { naks, sent } = total(await stats());
      expect(naks).toBeGreaterThan(0);
      await eventually(async () => expect(total(await stats()).sent).toBeGreaterThan(sent));
      for (const end of [client, server]) end.child.kill();
      await Promise.all([client.ended, server.ended]);
    });

    test('wasm-roce fault ends when its program has ended, although others use the broker', async () => {
      const [program, other] = [launch(far, [compileEvents(folder)]), launch(far, [compileEvents(folder)])];
      for (const each of [program, other]) await each.prints((text) => text.includes('ready'));
      const fault = control('fault', '--pid', `${programOf(program)}`, 'drop every ACK');
      await fault.prints((text) => text.includes('rule 1'));
      program.child.kill();
      await program.ended;
      expect(await fault.ended).toMatchObject({
        status: 0,
        stdout: expect.stringContaining('the programs have ended'),
      });
      other.child.kill();
      await other.ended;
    });

    test('the rules of run stay in force when the broker is killed', async () => {
      const broker = control('broker', '--idle', '5');
      await broker.prints((text) => text.includes('')).catch(() => {});
      await eventually(async () => expect((await control('stat').ended).stderr).not.toContain('cannot'));
      const rule = 'drop 1 % of WRITE_MIDDLE';
      const ways = await write(['--fault', rule], { words: ['-D', '4'], from: far });
      const inForce = async () => expect((await control('fault', '--list').ended).stdout).toMatch(/\([1-9]\d* hits\)/);
      await eventually(inForce);
      broker.child.kill('SIGKILL');
      await broker.ended;
      await eventually(inForce);
      await ends(ways);
    });

    test('events of the host are events, GIDs and files of the program', async () => {
      const program = launch(far, [compileEvents(folder)]);
      await program.prints((text) => text.includes('ready'));
      const own = ADDRESS;
      for (const rule of ['port down', 'gid add 10.9.9.9', `gid remove ${own}`])
        expect(await control('fault', '--for', '0.2', rule).ended).toMatchObject({ status: 0 });
      await control('fault', '--keep', 'device failure').ended;
      const { stdout, stderr } = await program.ended;
      expect(stdout.trim().split('\n')).toEqual([
        'ready',
        `port error: down ${own} 1: DOWN`,
        `port active: active ${own} 4: ACTIVE`,
        `GID table change: active ${own} 10.9.9.9 4: ACTIVE`,
        `GID table change: active ${own} 4: ACTIVE`,
        'GID table change: active 4: ACTIVE',
        `GID table change: active ${own} 4: ACTIVE`,
        `local catastrophic error: active ${own} 4: ACTIVE`,
      ]);
      expect(stderr).toContain("the card has failed: the rule of faults 'device failure'");
    });

    test.each([
      [['--fault', 'drop every NONSENSE'], {}, /no operation NONSENSE/],
      [['--seed', '7'], {}, /--seed needs --fault/],
      [[], { WASM_ROCE_FAULT: 'drop every NONSENSE' }, /WASM_ROCE_FAULT: .*no operation NONSENSE/],
      [[], { WASM_ROCE_FAULT: 'port sideways' }, /WASM_ROCE_FAULT: .*'port sideways'/],
      [['--fault', 'drop every ACK'], { WASM_ROCE_FAULT_SEED: 'x' }, /WASM_ROCE_FAULT_SEED is 'x', not a whole number/],
      [['--fault', 'drop every ACK'], { WASM_ROCE_FAULT_SEED: `${2 ** 60}` }, /seed \d+ is not an integer below/],
      [['--fault', 'drop every ACK'], { WASM_ROCE_BROKER: 'off' }, /rules of faults .* need the broker/],
    ] as const)('run %j with %j: the error says what is wrong', async (options, env, error) => {
      const args = ['run', '--interface', far.interface, ...options, '--', 'ibv_devinfo'];
      const { status, stderr } = await start(args, { prefix: far.enter, env }).ended;
      expect(status).not.toBe(0);
      expect(stderr).toMatch(error);
    });
  },
);
