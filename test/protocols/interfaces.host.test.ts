// Hosts with several interfaces: which device a service or connection is on. The programs run with all capabilities and
// with none, and over node:net and node:dgram beside ours.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Device, openDevice } from '../../src/index.js';
import { connect } from '../../src/net.js';
import * as valkey from '../../src/valkey.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { type ChildProgram, PeerNamespace, sh } from '../link/netns.js';
import { CALLS, NQN, type World } from './hostprogram.js';

const PROGRAM = fileURLToPath(new URL('hostprogram.ts', import.meta.url));
const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
/** Without capabilities, but still root: another user may not be allowed to read the project. */
const UNPRIVILEGED = ['setpriv', '--inh-caps=-all', '--bounding-set=-all'];
const PORT = 7901;
const NETS = [185, 186] as const;
const HOSTS = NETS.flatMap((net) => [`10.${net}.0.2`, `fd00:${net}::2`]);

const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'), programPrivilege('setpriv'));

/** A program in a namespace. */
class Program {
  private constructor(readonly child: ChildProgram) {}

  static async start(host: PeerNamespace, wrap: readonly string[]): Promise<Program> {
    const child = host.start(PROGRAM, [], [...wrap]);
    expect(await child.line()).toBe('ready');
    return new Program(child);
  }

  async call<Name extends keyof typeof CALLS>(name: Name, ...call: Parameters<(typeof CALLS)[Name]>) {
    return JSON.parse(await this.child.request(JSON.stringify([name, ...call])));
  }

  stop(): Promise<void> {
    return this.child.stop();
  }
}

describeIf(privilege, 'a host with two interfaces', () => {
  let host: PeerNamespace;
  beforeAll(async () => {
    host = await PeerNamespace.open('hst', NETS[0]);
    host.connect('hst2a', 'hst2b', NETS[1]);
  });
  afterAll(() => {
    host.close();
    sh('ip link del hst2a');
  });

  test('without the broker a server warns of an interface that another has, and fails where there is no other', async () => {
    const alone = ['env', 'WASM_ROCE_BROKER=off', ...UNPRIVILEGED];
    const [one, two] = await Promise.all([0, 1].map(() => Program.start(host, alone)));
    await one.call('listen', 'ours', { port: PORT, host: HOSTS[0] as string });
    await two.call('listen', 'ours', { port: PORT });
    expect(await CALLS.connect('ours', { port: PORT, host: HOSTS[2] as string })).toMatchObject({ text: 'hello' });
    const taken = `UDP port 4791 of ${HOSTS[0]} is taken by an rxe device of this host or by another program`;
    const [warning, ...more] = await two.call('warnings');
    expect([warning, more]).toEqual([expect.stringContaining('all addresses is not on hstb: EADDRINUSE'), []]);
    expect(warning).toContain(taken);
    expect(await two.call('fails', { port: PORT, host: HOSTS[1] as string })).toMatchObject({
      code: 'EADDRINUSE',
      message: expect.stringMatching(
        /^listen EADDRINUSE: address already in use .* is taken by .* both programs share/,
      ),
    });
    await Promise.all([one.stop(), two.stop()]);
  });

  test('the commands `nvme-target` and `valkey-proxy` serve all interfaces unless one is named', async () => {
    const file = join(mkdtempSync(join(tmpdir(), 'interfaces-')), 'disk');
    const disk = ['--namespace', `disk=${file},size=1m`, '--nqn', NQN, '--listen', '4421'];
    const [v4, , other] = HOSTS as [string, string, string];
    for (const [args, served] of [
      [[], [v4, other]],
      [['--ib-dev', host.far], [v4]],
    ] as const) {
      const target = host.start(MAIN, ['nvme-target', '--json', ...disk, ...args]);
      expect(JSON.parse(await target.line())).toMatchObject({
        port: 4421,
        addresses: expect.arrayContaining([...served]),
      });
      for (const address of served) expect(await CALLS.discover(address, 4421)).toContainEqual({ nqn: NQN, address });
      await target.kill();
    }
    const proxy = host.start(MAIN, ['valkey-proxy', '--json', '--listen', '6401']);
    expect(JSON.parse(await proxy.line())).toMatchObject({ addresses: expect.arrayContaining([v4, other]) });
    for (const address of [v4, other]) {
      const client = valkey.connect({ host: address, port: 6401 });
      await once(client, 'connect');
      client.on('error', () => {}).destroy();
      await once(client, 'close');
    }
    await proxy.kill();
    rmSync(dirname(file), { recursive: true });
  });

  test('an endpoint serves all interfaces, its regions the first one, and its metrics are of all', async () => {
    const [v4, , other] = HOSTS as [string, string, string];
    const services = ['echo:7404', 'regions:7405', 'rping:7406', 'write-bw:7407'].flatMap((it) => ['--serve', it]);
    const args = ['endpoint', '--log', 'json', ...services, '--region', 'scratch=4k', '--metrics', '9409'];
    const endpoint = host.start(MAIN, args);
    const opened: string[] = [];
    for (let line = JSON.parse(await endpoint.line()); line.event !== 'ready'; line = JSON.parse(await endpoint.line()))
      if (line.event === 'open') opened.push(line.interface);
    // loopback has a device for each address
    expect(opened.sort()).toEqual([host.far, 'hst2b', 'lo', 'lo'].sort());
    await using device = await openDevice({ interface: host.near });
    await using second = await openDevice({ interface: 'hst2a' });
    const ask = async (from: Device, address: string, port: number) => {
      await using connection = await from.connect({ host: address, port });
      if (port === 7404) await connection.send('hello');
      return `${(await connection.receive())?.data}`;
    };
    expect([await ask(device, v4, 7404), await ask(second, other, 7404)]).toEqual(['hello', 'hello']);
    expect(JSON.parse(await ask(device, v4, 7405))).toMatchObject([{ name: 'scratch' }]);
    await expect(ask(second, other, 7405)).rejects.toMatchObject({ reason: 'INVALID_SERVICE_ID' });
    const run = (command: string) => sh(`${process.execPath} --import tsx ${MAIN} ${command}`);
    for (const address of [v4, other]) {
      run(`rping -c -a ${address} -p 7406 -C 2`);
      run(`write-bw -p 7407 -n 5 ${address}`);
    }
    const fetching = "fetch('http://127.0.0.1:9409/metrics').then(async (answer) => console.log(await answer.text()))";
    const metrics = host.sh(`${process.execPath} -e "${fetching}"`);
    expect(new Set(metrics.match(/(?<=interface=")\w+/g))).toEqual(new Set([host.far, 'hst2b', 'lo']));
    await endpoint.kill();
  });

  test.each(['connection', 'rsocket'])('the command `listen` serves all interfaces: %s', async (protocol) => {
    const args = ['listen', '--keep-open', '7402', ...(protocol === 'rsocket' ? ['--rsocket'] : [])];
    const [v4, , other] = HOSTS as [string, string, string];
    // without input it has nothing to say, and its clients end
    const listener = host.start(MAIN, args, ['sh', '-c', 'exec "$0" "$@" < /dev/null']);
    for (const address of [v4, other]) {
      const text = `hello ${address}`;
      const connects = () =>
        sh(
          `echo '${text}' | ${process.execPath} --import tsx ${MAIN} connect ${args.slice(3).join(' ')} ${address} 7402`,
        );
      await eventually(connects);
      expect(await listener.line()).toBe(text);
    }
    await listener.kill();
  });

  test('the command `listen` leaves all interfaces but that of its only client', async () => {
    const listener = host.start(MAIN, ['listen', '7403']);
    const used = () => host.sh('ss -Hlun sport = :4791').match(/\S+(?=:4791)/g) ?? [];
    await eventually(() => expect(used()).toContain(HOSTS[2]));
    await using device = await openDevice({ interface: host.near });
    const [address] = HOSTS as [string];
    // it listens after its devices have opened
    await using _ = await eventually(() => device.connect({ host: address, port: 7403 }));
    await eventually(() => expect(used()).not.toContain(HOSTS[2]));
    expect(used()).toContain(address);
    await listener.kill();
  });

  test.each(['packet', 'xdp'] as const)(
    'a connection goes on when its peer has another MAC address: %s',
    async (link) => {
      const program = await Program.start(host, []);
      const [address] = HOSTS as [string];
      await program.call('echo', 'ours', { port: PORT, host: address });
      await using device = await openDevice({ interface: host.near, link });
      const socket = connect({ port: PORT, host: address, device } as never);
      const echo = async (text: string) => {
        socket.write(text);
        expect(`${(await once(socket, 'data'))[0]}`).toBe(text);
      };
      await echo('before');
      const mac = `02:00:00:00:${link === 'xdp' ? 'aa' : 'bb'}:01`;
      host.sh(`ip link set ${host.far} address ${mac}`);
      host.sh(`bash -c 'echo > /dev/udp/10.${NETS[0]}.0.1/9'`);
      await echo('after');
      socket.destroy();
      await once(socket, 'close');
      await program.stop();
    },
  );

  describe.each([
    ['all privileges', []],
    ['no privileges', UNPRIVILEGED],
  ] as const)('a program with %s', (_user, wrap) => {
    let program: Program;
    beforeAll(async () => {
      program = await Program.start(host, wrap);
    });
    afterEach(async () => {
      await far('closeAll');
      await CALLS.closeAll();
    });
    afterAll(() => program.stop());

    const far: Program['call'] = (...call) => program.call(...call);
    const addressOf = (world: World) => far('listen', world, { port: PORT });

    test('a server of all addresses is reached by each interface and by loopback, and has the address that Node tells', async () => {
      expect(await addressOf('ours')).toEqual(await addressOf('node'));
      for (const address of HOSTS)
        expect(await CALLS.connect('ours', { port: PORT, host: address })).toMatchObject({
          text: 'hello',
          remoteAddress: address,
        });
      for (const name of ['127.0.0.1', '::1', 'localhost'])
        expect(await far('connect', 'ours', { port: PORT, host: name })).toMatchObject({ text: 'hello' });
      expect(await far('warnings')).toEqual([]);
    });

    test('a server of all IPv4 addresses is not reached by IPv6', async () => {
      const listen = async (world: World) => (await far('listen', world, { port: PORT, host: '0.0.0.0' })).address;
      expect(await listen('ours')).toEqual(await listen('node'));
      const [v4, v6] = HOSTS as [string, string];
      expect(await CALLS.connect('ours', { port: PORT, host: v4 })).toMatchObject({ text: 'hello' });
      expect(await CALLS.connect('ours', { port: PORT, host: v6 })).toEqual({ code: 'ECONNREFUSED' });
    });

    test('a server of all addresses is reached by an interface that appears later', async () => {
      await addressOf('ours');
      host.connect('hst3a', 'hst3b', 187);
      const connects = () => CALLS.connect('ours', { port: PORT, host: '10.187.0.2' });
      await eventually(async () => expect(await connects()).toMatchObject({ text: 'hello' }));
      sh('ip link del hst3a');
      // another interface of the same name
      host.connect('hst3a', 'hst3b', 187);
      await eventually(async () => expect(await connects()).toMatchObject({ text: 'hello' }));
      sh('ip link del hst3a');
      expect(await CALLS.connect('ours', { port: PORT, host: HOSTS[0] as string })).toMatchObject({ text: 'hello' });
    });

    test('a server of one address, or of a name, is on its interface alone', async () => {
      const [v4, , other] = HOSTS as [string, string, string];
      const listen = async (world: World, name: string) =>
        (await far('listen', world, { port: PORT, host: name })).address;
      for (const name of [v4, '127.0.0.2', 'localhost']) {
        expect(await listen('ours', name)).toEqual(await listen('node', name));
        await far('closeAll');
      }
      await listen('ours', '127.0.0.2');
      expect(await far('connect', 'ours', { port: PORT, host: '127.0.0.2' })).toMatchObject({ text: 'hello' });
      // the port is free on the other interface
      for (const address of [v4, other]) await far('listen', 'ours', { port: PORT, host: address }, address);
      for (const address of [v4, other])
        expect(await CALLS.connect('ours', { port: PORT, host: address })).toMatchObject({ text: address });
    });

    test('a server of an address that the host does not have fails as that of Node', async () => {
      const listen = (world: World) => far('listen', world, { port: PORT, host: '10.99.99.99' });
      expect(await listen('ours')).toEqual(await listen('node'));
    });

    test('a socket connects from its local address, by the interface that has it', async () => {
      const [v4, , other] = HOSTS as [string, string, string];
      const [near, wrong] = [v4, other].map((address) => address.replace(/2$/, '1')) as [string, string];
      await CALLS.listen('ours', { port: PORT, host: near });
      const connect = (localAddress: string) => far('connect', 'ours', { port: PORT, host: near, localAddress });
      expect(await connect(v4)).toMatchObject({ text: 'hello', localAddress: v4 });
      expect(await connect(wrong)).toEqual({ code: 'EADDRNOTAVAIL' });
    });

    test('a datagram socket of all addresses answers by the interface that a message came by', async () => {
      for (const [i, type] of (['udp4', 'udp6'] as const).entries()) {
        const port = await far('bind', 'ours', type);
        const hosts = HOSTS.filter((_, j) => j % 2 === i);
        const nears = hosts.map((address) => `hi from ${address.replace(/2$/, '1')}`);
        expect(await CALLS.ask('ours', type, port, hosts)).toEqual([...nears, ...nears]);
      }
      expect(await far('warnings')).toEqual([]);
    });

    test('a server of calls and a target of NVMe are reached by each interface', async () => {
      const calls = await far('serveCalls', 0);
      const disks = await far('serveDisks', 0);
      expect([calls > 0, disks > 0, calls !== disks]).toEqual([true, true, true]);
      for (const address of HOSTS) {
        expect(await CALLS.call(address, calls)).toBe('hello');
        expect(await CALLS.discover(address, disks)).toContainEqual({ nqn: NQN, address });
      }
    });

    test('the zone of a link-local address decides between interfaces with the same addresses', async () => {
      for (const name of ['hst4', 'hst5']) {
        host.connect(`${name}a`, `${name}b`, name === 'hst4' ? 188 : 189);
        const mac = (end: number) => `address 02:00:00:00:00:0${end}`;
        host.sh(`ip link set ${name}b down; ip link set ${name}b ${mac(2)}; ip link set ${name}b up`);
        sh(`ip link set ${name}a down; ip link set ${name}a ${mac(1)}; ip link set ${name}a up`);
        const [near, there] = ['fe80::ff:fe00:1', 'fe80::ff:fe00:2'].map((address) => `${address}%${name}`);
        const listen = () => CALLS.listen('ours', { port: PORT, host: `${near}a` }, name);
        await eventually(async () => expect(await listen()).toMatchObject({ address: { address: `${near}a` } }));
        const connect = () => far('connect', 'ours', { port: PORT, host: `${near}b` });
        await eventually(async () =>
          expect(await connect()).toEqual({ text: name, remoteAddress: `${near}b`, localAddress: `${there}b` }),
        );
      }
      sh('ip link del hst4a; ip link del hst5a');
    });
  });
});
