// `wasm-roce run`: stock programs of libibverbs, unchanged, on cards of their own.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { readCapture } from '../../src/probe/capture/read.js';
import { icrc } from '../../src/probe/packet/icrc.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { built, connected, LIBRARY, launch as launchOn, listening, listens, UNPRIVILEGED } from '../programs/ends.js';
import { run, start } from './run.js';

const tools = ['ibv_rc_pingpong', 'ibv_devinfo', 'ib_write_bw', 'rping', 'nsenter', 'setpriv'].map(programPrivilege);

/** The entry of the GID table with the IPv4 address: the link-local one is before it. */
const IPV4_GID = '1';

describeIf(all(built, netPrivilege(), ...tools), 'programs of libibverbs', () => {
  let host: PeerNamespace;
  beforeEach(async () => {
    host = await PeerNamespace.open('prg', 200);
  });
  afterEach(() => host.close());

  const [near, far] = ['10.200.0.1', '10.200.0.2'];
  let lastPort = 18_600;
  const there = () => ({ interface: host.far, enter: ['nsenter', ...host.enter] });
  const launch = (...words: string[]) => launchOn(there(), words);

  /** Runs both ends of ibv_rc_pingpong in the host's namespace. @returns their ends */
  async function pingpong(...options: string[]): Promise<Promise<unknown>> {
    const port = ++lastPort;
    const words = ['ibv_rc_pingpong', '-g', IPV4_GID, '-p', `${port}`, ...options];
    const server = launch(...words);
    await listening(server, port);
    const client = launch(...words, '127.0.0.1');
    return Promise.all([server.ended, client.ended]);
  }
  const twice = (each: object) => [expect.objectContaining(each), expect.objectContaining(each)];
  const done = twice({ status: 0, stderr: '', stdout: expect.stringContaining('iters in') });

  test('see one device, with the GIDs of the interface', async () => {
    const { status, stdout } = await launch('ibv_devinfo', '-v').ended;
    expect(status).toBe(0);
    expect(stdout).toMatch(/hca_id:\twroce0\n(.*\n)*.*state:\t*PORT_ACTIVE \(4\)\n(.*\n)*.*link_layer:\t*Ethernet/);
    expect(stdout).toMatch(new RegExp(`GID\\[ +${IPV4_GID}\\]:\\t+::ffff:${far}, RoCE v2`));
  });

  test('find the files of the device, and no others', async () => {
    const folder = '/sys/class/infiniband';
    const script = [
      'ls $0 /dev/infiniband',
      'cat $0/wroce0/ports/1/gid_attrs/ndevs/0',
      'test -c /dev/infiniband/uverbs0',
    ];
    const { status, stdout } = await launch('sh', '-c', script.join(';'), folder).ended;
    expect(stdout).toBe(`/dev/infiniband:\nrdma_cm\nuverbs0\n\n${folder}:\nwroce0\n${host.far}\n`);
    expect(status).toBe(0);
  });

  test('talk to a device of Node on another host', async () => {
    const port = ++lastPort;
    const server = start(['pingpong', '--link', 'udp', '--address', near, '-p', `${port}`, '-n', '500', '-c']);
    await server.says('waiting for a client');
    const client = launch('ibv_rc_pingpong', '-g', IPV4_GID, '-p', `${port}`, '-n', '500', '-c', near);
    expect(await Promise.all([server.ended, client.ended])).toEqual(twice({ status: 0 }));
  });

  test('share one address', async () => {
    const pairs = Array.from({ length: 4 }, () => pingpong('-c', '-n', '2000'));
    expect(await Promise.all(pairs)).toEqual(pairs.map(() => done));
  });

  test('keep their connections when the broker is killed, and later ones find the next broker', async () => {
    const broker = start(['broker'], { prefix: ['nsenter', ...host.enter, ...UNPRIVILEGED] });
    // else the programs would start one of their own
    await eventually(() => expect(host.sh('cat /proc/self/net/unix')).toContain('@wasm-roce/broker'));
    const pairs = Array.from({ length: 2 }, () => pingpong('-c', '-n', '12000'));
    await broker.says('slot');
    await new Promise((resolve) => setTimeout(resolve, 500));
    broker.child.kill('SIGKILL');
    expect(await pingpong('-c', '-n', '500')).toEqual(done);
    expect(await Promise.all(pairs)).toEqual(pairs.map(() => done));
  });

  test.each(['10.200.0.2', 'fd00:200::2'])('connect by rdma_cm on %s: rping', async (address) => {
    const words = ['rping', '-a', address, '-p', `${++lastPort}`, '-C', '50', '-V'];
    const [server] = await connected(
      () => launch(...words, '-s'),
      () => launch(...words, '-c'),
    );
    expect((await server.ended).status).toBe(0);
  });

  test('connect by rdma_cm to a server of Node on another host', async () => {
    const port = `${++lastPort}`;
    const server = start(['rping', '-s', '--link', 'udp', '--address', near, '-p', port, '-C', '50', '-V']);
    await server.says('waiting for');
    const client = await launch('rping', '-c', '-a', near, '-p', port, '-C', '50', '-V').ended;
    expect(client.status).toBe(0);
    expect((await server.ended).status).toBe(0);
  });

  test('connect by rdma_cm to write: ib_write_bw -R', async () => {
    const words = ['ib_write_bw', '-R', '-p', `${++lastPort}`, '-n', '200', '-s', '4096', '--report_gbits'];
    const [server] = await connected(
      () => launch(...words),
      () => launch(...words, far),
    );
    expect((await server.ended).status).toBe(0);
  });

  test('have failures explained', async () => {
    const words = ['ibv_rc_pingpong', '-g', IPV4_GID, '-n', '10000000'];
    // a server that ends between its acknowledgement and its answer leaves a client that waits, and does not fail
    const { stderr } = await eventually(async () => {
      const port = ++lastPort;
      const server = launch(...words, '-p', `${port}`);
      await listening(server, port);
      const client = launchOn(there(), [...words, '-p', `${port}`, '127.0.0.1'], ['--explain']);
      // the server has its client then
      await eventually(() => expect(listens(server.pid, port)).toBe(false));
      await new Promise((resolve) => setTimeout(resolve, 200));
      server.child.kill('SIGKILL');
      const waits = setTimeout(() => client.child.kill('SIGKILL'), 5000);
      const ended = await client.ended;
      clearTimeout(waits);
      expect(ended.status).toBe(1);
      return ended;
    });
    const lines = stderr.split('\n').filter((line) => line.startsWith('wasm-roce: '));
    expect(lines).toEqual([
      expect.stringMatching(
        /SEND \(wr_id 2\) on qp 0x\w{6} to 10.200.0.2 qp 0x\w{6} failed with RETRY_EXC_ERR: the peer did not .*timeouts of 67.1 ms\)$/,
      ),
    ]);
  });

  test('have the whole frames of all their processes captured in one file, in both directions', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-run-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const [pcap, words] = [join(folder, 'both.pcapng'), `ibv_rc_pingpong -g ${IPV4_GID} -p ${++lastPort} -n 20 -c`];
    const script = `${words} & until ${words} 127.0.0.1; do sleep 0.1; done; wait`;
    const { status } = await launchOn(there(), ['sh', '-c', script], ['--pcap', pcap]).ended;
    expect(status).toBe(0);
    const { packets, remarks } = readCapture(pcap);
    expect(remarks).toEqual([]);
    const isWhole = ({ data }: { data: Uint8Array }) =>
      icrc(data.subarray(14, -4)) === Buffer.from(data).readUInt32BE(data.length - 4);
    expect(packets.filter((packet) => !isWhole(packet))).toEqual([]);
    // 20 messages of 4096 bytes each way, in packets of 1024, which one process sends and the other one receives
    const sends = packets.filter(({ data }) => (data[42] as number) <= 4);
    for (const direction of [1, 2])
      expect(sends.filter((packet) => packet.direction === direction).length).toBeGreaterThanOrEqual(160);
  });

  test('pass the option of a program that begins with a dash, and end with its status', async () => {
    const { status, stderr } = await launch('ibv_rc_pingpong', '--no-such-option').ended;
    expect(status).toBe(1);
    expect(stderr).toContain('no-such-option');
  });
});

describeIf(built, 'wasm-roce run', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'wasm-roce-run-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test.each([
    ['exit 7', 7],
    ['kill -TERM $$', null],
  ])('ends as the program ends: %s', async (script, status) => {
    const ended = await run(['run', 'sh', '-c', script]);
    expect(ended).toEqual({ status, stdout: '', stderr: '' });
  });

  test('ends its program when it is killed', async () => {
    const running = start(['run', 'sh', '-c', 'echo ready; exec sleep 600']);
    await running.prints((stdout) => stdout === 'ready\n');
    running.child.kill('SIGKILL');
    // its output ends with the last process that has it
    expect(await running.ended).toMatchObject({ status: null });
  });

  test('refuses a program that does not exist', async () => {
    const { status, stderr } = await run(['run', '--', 'no-such-program']);
    expect([status, stderr]).toEqual([127, 'wasm-roce: no-such-program: there is no such program\n']);
  });

  test('keeps what LD_PRELOAD has', async () => {
    const { stdout } = await run(['run', 'sh', '-c', 'echo $LD_PRELOAD'], { env: { LD_PRELOAD: 'libm.so.6' } });
    expect(stdout).toBe(`${LIBRARY}:libm.so.6\n`);
  });

  const compiler = programPrivilege('gcc');

  /** Compiles a program of C. @returns its path */
  function compiled(name: string, text: string, ...options: string[]): string {
    const [source, program] = [join(folder, `${name}.c`), join(folder, name)];
    writeFileSync(source, text);
    execFileSync('gcc', ['-o', program, source, ...options]);
    return program;
  }

  testIf(compiler, 'reports what a program has done and left, and the calls that made it', async () => {
    const text = `
      #include <infiniband/verbs.h>
      int main(void) {
        struct ibv_context *context = ibv_open_device(*ibv_get_device_list(0));
        ibv_dealloc_pd(ibv_alloc_pd(context));
        return !ibv_alloc_pd(context) || !ibv_create_cq(context, 4, 0, 0, 0);
      }`;
    const program = compiled('leaks', text, '-libverbs', '-rdynamic');
    const { status, stderr } = await run(['run', '--report', '-', '--stacks', program]);
    expect(status).toBe(0);
    const lines = stderr.split('\n');
    expect(lines.slice(0, 4)).toEqual([
      expect.stringMatching(/^leaks \(process \d+\)$/),
      '  completions: none',
      '  completions that were not polled: 0',
      '  objects that were not destroyed: 1 device context, 1 protection domain, 1 completion queue',
    ]);
    expect(lines.filter((line) => line.endsWith('made by:'))).toHaveLength(3);
    expect(lines.filter((line) => line.includes('leaks(main'))).toHaveLength(3);
  });

  test('appends the reports of all processes to a file, which it empties first', async () => {
    const file = join(folder, 'report');
    writeFileSync(file, 'of before\n');
    const { status } = await run(['run', '--report', file, 'sh', '-c', 'ibv_devinfo; ibv_devinfo -v']);
    expect(status).toBe(0);
    expect(readFileSync(file, 'utf8').match(/^.*\(process \d+\)$/gm)).toHaveLength(2);
    expect(readFileSync(file, 'utf8')).not.toContain('of before');
  });

  test('prints the variables that make programs use the card', async () => {
    const { status, stdout } = await run(['run', '--print-env', '--interface', 'lo', '--explain']);
    expect(status).toBe(0);
    const names = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('=')[0]);
    expect(names).toEqual(['LD_PRELOAD', 'WASM_ROCE_BROKER_COMMAND', 'WASM_ROCE_INTERFACE', 'WASM_ROCE_EXPLAIN']);
    expect(stdout).toContain(`LD_PRELOAD=${LIBRARY}\n`);
  });

  test.each([
    [[], 'a program is missing'],
    [['--print-env', 'true'], '--print-env runs no program: true'],
  ])('refuses to run nothing, and to run a program beside its variables: %j', async (words, message) => {
    const { status, stderr } = await run(['run', ...words]);
    expect(status).toBe(2);
    expect(stderr).toContain(message);
  });

  test.each([
    [['--report', '/no/such/folder/report'], '--report /no/such/folder/report: ENOENT'],
    [['--pcap', '/no/such/folder/pcap'], '--pcap /no/such/folder/pcap: ENOENT'],
    [['--stacks'], '--stacks needs --report'],
  ])('refuses %j', async (options, message) => {
    const { status, stderr } = await run(['run', ...options, 'true']);
    expect(status).toBe(2);
    expect(stderr).toContain(message);
  });

  describe('programs that open libibverbs as they run', () => {
    const OPENS = `
      #define _GNU_SOURCE
      #include <dlfcn.h>
      #include <stdio.h>
      int main(int count, char **arguments) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) return puts(dlerror()), 1;
        void **(*versioned)(int *) = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
        void **(*list)(int *) = dlsym(library, "ibv_get_device_list");
        const char *(*name)(void *) = dlsym(library, "ibv_get_device_name");
        puts(name(list(0)[0]));
        return list != versioned;
      }`;
    const stock = execFileSync('sh', ['-c', 'ldconfig -p | sed -n "s/.*libibverbs.so.1 .*=> //p" | head -1'], {
      encoding: 'utf8',
    }).trim();

    testIf(compiler, 'have the device by its name and by its path', async () => {
      const program = compiled('opens', OPENS, '-ldl');
      for (const path of ['libibverbs.so.1', 'libibverbs.so', stock])
        expect(await run(['run', program, path])).toEqual({ status: 0, stdout: 'wroce0\n', stderr: '' });
    });

    testIf(compiler, 'find other libraries where their own path of libraries leads', async () => {
      compiled('libprivate.so', 'int answer(void) { return 42; }', '-shared', '-fPIC');
      const text = '#include <dlfcn.h>\nint main(void) { return dlopen("libprivate.so", RTLD_NOW) == 0; }';
      const program = compiled('private', text, `-Wl,-rpath,${folder}`, '-ldl');
      expect(await run(['run', program])).toEqual({ status: 0, stdout: '', stderr: '' });
    });

    testIf(compiler, 'have it without the preload from the file libibverbs.so.1', () => {
      const program = compiled('opensfile', OPENS, '-ldl');
      const env = { ...process.env, LD_LIBRARY_PATH: dirname(LIBRARY), WASM_ROCE_BROKER: 'off' };
      const enter = ['unshare', '-rn', 'sh', '-c', 'ip link set lo up; exec "$0" libibverbs.so.1'];
      const [command = '', ...args] = [...enter, program];
      expect(execFileSync(command, args, { env, encoding: 'utf8' })).toBe('wroce0\n');
    });

    testIf(compiler, 'have the rates and paths of the stock library in that file', () => {
      const program = compiled(
        'rates',
        `#include <infiniband/verbs.h>
        #include <stdio.h>
        const char *ibv_get_sysfs_path(void);
        int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t bytes);
        int main(void) {
          for (int i = -1; i < 32; i++)
            printf("%d %d %d %d\\n", i, ibv_rate_to_mult(i), ibv_rate_to_mbps(i), mult_to_ibv_rate(i));
          for (int i = 0; i < 1300000; i++) if (mbps_to_ibv_rate(i)) printf("%d %d\\n", i, mbps_to_ibv_rate(i));
          char text[16];
          printf("%s %d\\n", ibv_get_sysfs_path(), ibv_read_sysfs_file("/proc/self", "comm", text, sizeof text));
          return puts(text) < 0;
        }`,
        '-libverbs',
      );
      const printed = (env: NodeJS.ProcessEnv) => execFileSync(program, { env: { ...process.env, ...env } }).toString();
      expect(printed({ LD_LIBRARY_PATH: dirname(LIBRARY) })).toBe(printed({}));
    });
  });

  describe('refuses a program that a preloaded library does not reach', () => {
    const NOTHING = 'int main(void) { return 0; }\n';
    testIf(compiler, 'one that is linked statically', async () => {
      const { status, stderr } = await run(['run', compiled('static', NOTHING, '-static')]);
      expect(status).toBe(126);
      expect(stderr).toMatch(/static cannot be run on the card: it is linked statically/);
    });
    testIf(all(compiler, programPrivilege('chown')), 'one that changes the user', async () => {
      const program = compiled('setuid', NOTHING);
      execFileSync('chown', ['65534', program]);
      execFileSync('chmod', ['u+s', program]);
      const { status, stderr } = await run(['run', program]);
      expect(status).toBe(126);
      expect(stderr).toMatch(/setuid cannot be run on the card: it has the set-user-id or set-group-id bit/);
    });
  });
});
