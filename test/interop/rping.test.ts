// `wasm-roce rping` and the stock rping of rdma-core, each as client and as server of the other.
import { expect, test } from 'vitest';
import { ping } from '../../src/cli/rping/client.js';
import { MAX_PING_BYTES, RPING_PORT } from '../../src/cli/rping/protocol.js';
import type { RpingReport } from '../../src/cli/rping/report.js';
import { type RpingOptions, runClient, runServer } from '../../src/cli/rping/roles.js';
import { captureOutput, tracked } from './captured-output.js';
import { type LinkKind, OurDevice } from './card.js';
import { describeLinks, describeWithRxe, type Environment, matrix, xdpRows } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';

/** Message sizes; the last one is the largest of the stock program. */
const SIZES = [64, 4096, MAX_PING_BYTES - 1];
const COUNT = 5;
const PATIENCE = { timeout: 60_000 };
const ADDRESSES = {
  IPv4: { ours: CARD.ipv4, theirs: GUEST.ipv4, any: '0.0.0.0' },
  IPv6: { ours: CARD.ipv6, theirs: GUEST.ipv6, any: '::0' },
} as const;

const options = (link: LinkKind, changes: Partial<RpingOptions> = {}): RpingOptions => ({
  ...{
    port: RPING_PORT,
    size: MAX_PING_BYTES,
    count: COUNT,
    idleMs: 20_000,
    validate: true,
    verbose: false,
    debug: false,
  },
  ...{ persistent: false, signal: new AbortController().signal, interface: CARD.interface, link },
  open: { memoryBytes: 2 ** 25 },
  ...changes,
});

const texts = (stdout: string) => stdout.match(/ping data: rdma-ping-\d+: [A-z]+/g) ?? [];

/** Starts our server and waits until it listens. */
async function serving(our: RpingOptions) {
  const { output, stdout, stderr } = captureOutput();
  const ended = tracked(runServer(our, output));
  ended.catch(() => {});
  while (!stderr.text.includes('waiting for')) await Promise.race([ended, new Promise((next) => setTimeout(next, 2))]);
  const reports = () =>
    stdout.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as RpingReport);
  return { ended, reports };
}

/**
 * Expects that the guest holds nothing of an ended connection: only queue pairs 0 and 1, and no id except listeners.
 */
async function expectNothingLeft({ guest }: Environment): Promise<void> {
  const left = 'rdma resource show qp | grep -v "type GSI\\|type SMI"; rdma resource show cm_id';
  await guest.run(`for i in $(seq 100); do [ -z "$(${left})" ] && exit 0; sleep 0.05; done; ${left}; exit 1`, PATIENCE);
}

describeWithRxe('rping', 1500, (environment) => {
  const rows = (['client', 'server'] as const).flatMap((role, i) => [
    ...matrix([role]),
    ...xdpRows(role, role).slice(i, i + 1),
  ]);
  describeLinks(rows, 'link %s, %s, we are the %s', ([link, family, role]) => {
    const { ours, theirs, any } = ADDRESSES[family as Family];
    test.each(SIZES)('%d bytes', async (size) => {
      const words = ['rping', '-v', '-V', '-S', String(size), '-C', String(COUNT)];
      let stdout: string;
      let report: RpingReport | undefined;
      if (role === 'client') {
        const tool = environment.guest.spawn([...words, '-s', '-a', any]);
        await environment.guest.listening(RPING_PORT, 'rdma');
        const our = captureOutput();
        await tracked(runClient(theirs, options(link, { size }), our.output));
        report = JSON.parse(our.stdout.text);
        const ended = await tool.exited;
        expect(ended.status).toBe(0);
        stdout = ended.stdout;
      } else {
        const server = await serving(options(link, { listen: ours }));
        stdout = await environment.guest.run([...words, '-c', '-a', ours], PATIENCE);
        await server.ended;
        [report] = server.reports();
      }
      expect(report).toMatchObject({ ok: true, role, link, pings: COUNT, bytes: COUNT * size, checked: COUNT });
      expect(texts(stdout).length).toBe(COUNT);
    });
  });

  test('our server serves two clients at once, and ends in order when it is stopped', async () => {
    const stop = new AbortController();
    const server = await serving(options('packet', { persistent: true, signal: stop.signal }));
    const words = ['rping', '-c', '-v', '-V', '-S', '1000', '-a'];
    const few = [CARD.ipv4, CARD.ipv6].map((address) =>
      environment.guest.run([...words, address, '-C', '40'], PATIENCE),
    );
    for (const stdout of await Promise.all(few)) expect(texts(stdout).length).toBe(40);
    const endless = environment.guest.spawn([...words, CARD.ipv4]);
    await endless.waitFor(/rdma-ping-10:/);
    stop.abort();
    await server.ended;
    const { stderr } = await endless.exited;
    expect(stderr).toContain('DISCONNECT EVENT');
    const [first, second, last] = server.reports();
    for (const report of [first, second]) expect(report).toMatchObject({ ok: true, pings: 40, checked: 40 });
    expect(last?.pings).toBeGreaterThan(10);
    await expectNothingLeft(environment);
  });

  test('the stock server serves two of our clients at once', async () => {
    await using tool = environment.guest.spawn(['rping', '-s', '-P', '-v', '-S', '1000', '-a', '::0']);
    await environment.guest.listening(RPING_PORT, 'rdma');
    await using our = await OurDevice.open('packet');
    const asks = (host: string, count: number) =>
      ping(our.device, { ...options('packet', { size: 1000, count }), host });
    const first = asks(GUEST.ipv4, 200);
    // its persistent server keeps one request at a time: a second one that comes before the first is cloned replaces it
    await Promise.race([tool.waitFor(/rdma-ping-0:/), first]);
    const outcomes = await Promise.all([first, asks(GUEST.ipv6, 40)]);
    expect(outcomes).toMatchObject([
      { pings: 200, invalid: 0 },
      { pings: 40, invalid: 0 },
    ]);
    await tool.kill();
    await expectNothingLeft(environment);
  });

  test('the stock server learns that our client was stopped', async () => {
    await using tool = environment.guest.spawn(['rping', '-s', '-v', '-a', '0.0.0.0']);
    await environment.guest.listening(RPING_PORT, 'rdma');
    const stop = new AbortController();
    const our = captureOutput();
    const running = tracked(
      runClient(GUEST.ipv4, options('udp', { size: 64, count: 1e9, signal: stop.signal }), our.output),
    );
    await tool.waitFor(/rdma-ping-5:/);
    stop.abort();
    await expect(running).rejects.toThrow(/interrupted after \d+ of/);
    expect((await tool.exited).stderr).toContain('DISCONNECT EVENT');
    await expectNothingLeft(environment);
  });
});
