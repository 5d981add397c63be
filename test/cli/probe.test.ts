// probe: checks of an endpoint in another network namespace, over a veth pair.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CHECKS, readCapture } from '../../src/probe.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { JUDGED_BY_TIME } from '../probe/judgedbytime.js';
import { type Running, run, start } from './run.js';

const NET = 197;
const MTU = 1500;

describeIf(all(netPrivilege(), programPrivilege('ip'), programPrivilege('nsenter')), 'over veth', () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-probe-'));
  let namespace: PeerNamespace;
  let endpoint: Running;

  beforeAll(async () => {
    namespace = await PeerNamespace.open('prb', NET, MTU);
    const regions = {
      scratch: { size: '64k', access: ['remoteRead', 'remoteWrite', 'remoteAtomic'] },
      sealed: { size: '4k', access: ['remoteRead'] },
    };
    const services = [{ type: 'regions' }, { type: 'write-bw' }, { type: 'traffic' }];
    const config = join(folder, 'config.json');
    writeFileSync(config, JSON.stringify({ interface: namespace.far, link: 'packet', regions, services }));
    endpoint = start(['endpoint', config], { prefix: ['nsenter', ...namespace.enter] });
    await endpoint.prints((stdout) => stdout.includes(' ready '));
  });
  afterAll(() => {
    endpoint?.child.kill('SIGKILL');
    namespace?.close();
    rmSync(folder, { recursive: true });
  });

  const probe = (...args: string[]) => {
    const end = ['--ib-dev', namespace.near, '--link', 'packet'];
    return run(['probe', namespace.farAddresses[0], ...end, ...args]);
  };

  test('our own endpoint passes every check, except for those that a busy host changes', async () => {
    const file = join(folder, 'result.json');
    const { status, stdout: none, stderr } = await probe('--intrusive', '--json', file);
    expect(none).toBe('');
    expect(stderr).toMatch(
      /\ntimes of \d+ packets are of the kernel, of \d+ of this process; error at most [\d.]+ µs\n/,
    );
    expect(stderr).toMatch(
      /^found: regions \(rdma_cm port 7472\)\nfound: traffic \(rdma_cm port 7473\)\nfound: perftest \(TCP port 18515\)\nnot there: /m,
    );
    expect(stderr).toMatch(/^not there: rping \(rdma_cm port 7174\): .*INVALID_SERVICE_ID/m);
    expect(stderr).toMatch(/ +nak_generation: \d+ values: min .* µs, median /);
    expect(stderr).toMatch(/^The peer is probably wasm-roce\.$/m);
    const { peer, links, summary, checks } = JSON.parse(readFileSync(file, 'utf8'));
    const link = {
      kind: 'packet',
      interface: namespace.near,
      address: expect.any(String),
      mtu: 1024,
      timeError: expect.any(Number),
    };
    expect({ peer, links }).toEqual({ peer: namespace.farAddresses[0], links: [link] });
    expect(checks.map(({ name }: { name: string }) => name)).toEqual(CHECKS.map(({ name }) => name));
    const others = checks.filter(({ verdict }: { verdict: string }) => verdict !== 'pass');
    expect(others.filter(({ name }: { name: string }) => !JUDGED_BY_TIME.has(name))).toEqual([]);
    expect(summary).toMatchObject({ pass: CHECKS.length - others.length, 'not reachable': 0 });
    expect(status).toBe(summary.fails === 0 ? 0 : 1);
    expect(stderr).toContain(`\n${summary.pass} pass, ${summary.deviates} deviate, ${summary.fails} fail, `);
  }, 60_000);

  test('other addresses of the peer are tried, and one that does not answer is named', async () => {
    const [, other] = namespace.farAddresses;
    const good = await probe('--check', 'every-gid', '--peer-gid', other);
    expect(good.stdout).toMatch(/^pass +60 .*\n +gid_pairs: 1 value: 2\n +reached_gid_pairs: 1 value: 2$/m);
    const bad = await probe('--check', 'every-gid', '--peer-gid', other, '--peer-gid', `10.${NET}.0.99`);
    expect(bad.stdout).toMatch(/^ +1 of 3 pairs are not reached: .* to 10\.197\.0\.99: EHOSTUNREACH: /m);
    const wrong = await probe('--peer-gid', 'nowhere');
    expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining("'nowhere' is invalid")]);
  });

  test('reports are written to files, and differences from an earlier one named', async () => {
    const path = (name: string) => join(folder, name);
    const files = ['--html', path('report.html'), '--junit', path('report.xml'), '--packets', path('report.pcapng')];
    const first = await probe('--check', 'psn-gap', '--json', path('first.json'), ...files);
    expect(first.status, first.stderr).toBe(0);
    expect(readFileSync(path('report.html'), 'utf8')).toContain('psn-gap');
    expect(readFileSync(path('report.xml'), 'utf8')).toMatch(/<testsuite [^>]*tests="1"/);
    const { packets } = readCapture(readFileSync(path('report.pcapng')));
    expect(packets.length).toBeGreaterThan(4);
    const second = await probe('--check', 'psn-gap', '--check', 'stale-ack', '--baseline', path('first.json'));
    expect(second.stdout).toMatch(/^Compared with the report of .*:\nnew: stale-ack$/m);
    writeFileSync(path('damaged.json'), '{"schema": 1}');
    const damaged = await probe('--baseline', path('damaged.json'));
    expect([damaged.status, damaged.stdout]).toEqual([2, '']);
    expect(damaged.stderr).toMatch(/--baseline .*damaged\.json: /);
    const nowhere = await probe('--check', 'psn-gap', '--html', path('missing/report.html'));
    expect(nowhere.stderr).toMatch(/missing\/report\.html cannot be written: ENOENT/);
    expect(nowhere.status).toBe(3);
  }, 60_000);

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)(
    '%s in the middle of a run writes all reports, with the reason, at once',
    async (signal, status) => {
      const path = (name: string) => join(folder, `${signal}-${name}`);
      const names = ['json', 'html', 'junit', 'packets'];
      const files = names.flatMap((name) => [`--${name}`, path(name)]);
      const end = ['--ib-dev', namespace.near, '--link', 'packet'];
      // a command that waited for an answer until its time is over would take longer than this test
      const running = start(['probe', namespace.farAddresses[0], '--timeout', '600', ...end, ...files]);
      await running.says(' 14  ');
      running.child.kill(signal);
      const ended = await running.ended;
      expect([ended.status, ended.stdout]).toEqual([status, '']);
      const report = JSON.parse(readFileSync(path('json'), 'utf8'));
      expect(report.ended).toBe(`stopped by ${signal}`);
      expect(report.checks).toHaveLength(CHECKS.length);
      expect(report.summary.pass).toBeGreaterThan(3);
      expect(readFileSync(path('html'), 'utf8')).toContain(`The run has ended early: stopped by ${signal}`);
      expect(readFileSync(path('junit'), 'utf8')).toContain(`<error message="stopped by ${signal}"`);
      expect(readCapture(readFileSync(path('packets'))).packets.length).toBeGreaterThan(10);
    },
    30_000,
  );

  test('a peer that dies is a finding, and ends the run', async () => {
    const config = join(folder, 'config.json');
    const json = join(folder, 'dead.json');
    const dying = await PeerNamespace.open('prd', NET + 1, MTU);
    try {
      const text = readFileSync(config, 'utf8').replaceAll(namespace.far, dying.far);
      writeFileSync(join(folder, 'dying.json'), text);
      const peer = start(['endpoint', join(folder, 'dying.json')], { prefix: ['nsenter', ...dying.enter] });
      await peer.prints((stdout) => stdout.includes(' ready '));
      const end = ['--ib-dev', dying.near, '--link', 'packet', '--timeout', '1', '--json', json];
      const running = start(['probe', dying.farAddresses[0], ...end]);
      await running.says(' 14  ');
      peer.child.kill('SIGKILL');
      const { status, stdout, stderr } = await running.ended;
      expect([status, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(/^fails +57 /m);
      const { ended, checks } = JSON.parse(readFileSync(json, 'utf8'));
      expect(ended).toMatch(/^the peer stopped answering after check \d+ [a-z-]+: no packet came in check /);
      expect(checks.find(({ number }: { number: number }) => number === 57).text).toBe(ended);
    } finally {
      dying.close();
    }
  }, 60_000);

  test('a host that does not answer ARP gets a report with the reason, status 1, and nothing on standard output', async () => {
    const json = join(folder, 'none.json');
    const nobody = namespace.farAddresses[0].replace(/\d+$/, '77');
    const end = ['--ib-dev', namespace.near, '--link', 'packet', '--json', json];
    const { status, stdout, stderr } = await run(['probe', nobody, ...end]);
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^wasm-roce: .*did not reply to ARP/m);
    expect(JSON.parse(readFileSync(json, 'utf8')).ended).toMatch(/did not reply to ARP/);
  }, 30_000);

  test('a run that --time ends writes its report', async () => {
    // on a busy machine the first check alone can take more than a second
    const { status, stdout } = await probe('--time', '4', '--json', '-');
    expect(status).toBe(1);
    const { ended, summary, checks } = JSON.parse(stdout);
    expect(ended).toBe('4 s are over');
    expect(summary.pass).toBeGreaterThan(0);
    expect(checks).toHaveLength(CHECKS.length);
  }, 30_000);

  test('nothing intrusive is sent by default, and the result says so', async () => {
    const { status, stdout } = await probe('--check', '30', '--check', 'psn-gap');
    expect(status).toBe(0);
    expect(stdout).toMatch(/^not applicable 30 .*\n +intrusive: it sends malformed packets/m);
    expect(stdout).toMatch(/^pass +21 /m);
  }, 30_000);

  test('a peer without the services gives a list of what to start there, and status 1', async () => {
    const { status, stdout, stderr } = await probe('--check', 'psn-gap', '--regions', '7999', '--perftest', '7998');
    expect(status).toBe(1);
    expect(stdout).toMatch(/^not reachable +21 .*\n +start on the peer: wasm-roce endpoint --serve regions:7999/m);
    expect(stderr).toMatch(/not there: .*: .*INVALID_SERVICE_ID/);
    expect(stderr).toMatch(/offers nothing that the checks can use/);
  }, 30_000);

  test('without discovery the usual services are used', async () => {
    const { status, stdout } = await probe('--check', 'psn-gap', '--no-discovery');
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/^pass +21 /);
  }, 30_000);

  test('a peer that sends no requests gives a list of what to start there', async () => {
    const { stdout } = await probe('--check', 'nak-reaction', '--traffic', '7997', '--rping', '7996');
    expect(stdout).toMatch(
      / start on the peer: wasm-roce endpoint --serve traffic:7997 or rping -s -P -p 7996 -S 64\n/,
    );
  }, 30_000);

  test('an IPv6 address works', async () => {
    const args = [namespace.farAddresses[1], '--ib-dev', namespace.near, '--link', 'packet', '--json', '-'];
    const { status, stdout } = await run(['probe', ...args, '--check', 'psn-gap', '--check', 'ipv4-header']);
    expect(status, stdout).toBe(0);
    const verdicts = JSON.parse(stdout).checks.map(({ verdict }: { verdict: string }) => verdict);
    expect(verdicts).toEqual(['pass', 'not applicable']);
  }, 30_000);
});

test('a dry run lists the checks and their packets, and needs no peer', async () => {
  const { status, stdout } = await run(['probe', '192.0.2.7', '--dry-run', '--check', 'psn-gap', '--check', '2']);
  expect(status).toBe(0);
  expect(stdout).toBe(
    '21  psn-gap: A gap in the PSNs is answered by one NAK with the expected PSN\n' +
      '      sends: a request beyond a gap, three more of them, and then the missing one\n',
  );
  const intrusive = await run(['probe', '192.0.2.7', '--dry-run', '--intrusive', '--check', '2']);
  expect(intrusive.stdout).toMatch(/^ 2 {2}damaged-icrc: .* \(intrusive\)\n {6}sends: a request whose ICRC/);
});

test.each([
  [['--check', 'nothing'], /--check nothing: it must be the name or number of a check/],
  [['--load', 'missing.mjs'], /--load missing\.mjs: Cannot find module/],
  [['--link', 'udp'], /--link udp sends no packets as they are written; probe needs packet or xdp/],
  [['--rate', '0'], /It must be an integer from 1 to 1000000/],
  [['--mode', 'worker'], /probe needs --mode inline, found --mode worker/],
])('usage: %s', async (args, message) => {
  const { status, stderr } = await run(['probe', '192.0.2.7', ...args]);
  expect(status).toBe(2);
  expect(stderr).toMatch(message);
});
