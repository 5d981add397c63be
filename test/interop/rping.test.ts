// `wasm-roce rping` and the stock rping of rdma-core, each as client and as server of the other.
import { expect, test } from 'vitest';
import { ping } from '../../src/cli/rping/client.js';
import type { RpingReport } from '../../src/cli/rping/report.js';
import { type RpingOptions, runClient, runServer } from '../../src/cli/rping/roles.js';
import { LARGEST, PORT } from '../../src/cli/rping/words.js';
import { type LinkKind, OurDevice } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';
import { printed } from './printed.js';
import { describeLinks, describeWithRxe, matrix, type World, xdpRows } from './world.js';

/** The stock program takes no more than the last. */
const SIZES = [64, 4096, LARGEST - 1];
const COUNT = 5;
const PATIENCE = { timeout: 60_000 };
const ADDRESSES = {
  IPv4: { ours: CARD.ipv4, theirs: GUEST.ipv4, any: '0.0.0.0' },
  IPv6: { ours: CARD.ipv6, theirs: GUEST.ipv6, any: '::0' },
} as const;

const options = (link: LinkKind, changes: Partial<RpingOptions> = {}): RpingOptions => ({
  ...{ port: PORT, size: LARGEST, count: COUNT, idleMs: 20_000, validate: true, verbose: false, debug: false },
  ...{ persistent: false, signal: new AbortController().signal, interface: CARD.interface, link },
  open: { memoryBytes: 2 ** 25 },
  ...changes,
});

const texts = (stdout: string) => stdout.match(/ping data: rdma-ping-\d+: [A-z]+/g) ?? [];

/** Our server, until it listens: what it waits for has no other sign. */
async function serving(our: RpingOptions) {
  const { output, stdout, stderr } = printed();
  const ended = runServer(our, output);
  ended.catch(() => {});
  while (!stderr.text.includes('waiting for')) await Promise.race([ended, new Promise((next) => setTimeout(next, 2))]);
  const reports = () =>
    stdout.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as RpingReport);
  return { ended, reports };
}

/** The guest keeps nothing of a connection that has ended: only queue pairs 0 and 1, and no id but of who listens. */
async function expectNothingLeft({ guest }: World): Promise<void> {
  const left = 'rdma resource show qp | grep -v "type GSI\\|type SMI"; rdma resource show cm_id';
  await guest.run(`for i in $(seq 100); do [ -z "$(${left})" ] && exit 0; sleep 0.05; done; ${left}; exit 1`, PATIENCE);
}

describeWithRxe('rping', 1500, (world) => {
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
        const tool = world.guest.spawn([...words, '-s', '-a', any]);
        await world.guest.listening(PORT, 'rdma');
        const our = printed();
        await runClient(theirs, options(link, { size }), our.output);
        report = JSON.parse(our.stdout.text);
        const ended = await tool.exited;
        expect(ended.status).toBe(0);
        stdout = ended.stdout;
      } else {
        const server = await serving(options(link, { listen: ours }));
        stdout = await world.guest.run([...words, '-c', '-a', ours], PATIENCE);
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
    const few = [CARD.ipv4, CARD.ipv6].map((address) => world.guest.run([...words, address, '-C', '40'], PATIENCE));
    for (const stdout of await Promise.all(few)) expect(texts(stdout).length).toBe(40);
    const endless = world.guest.spawn([...words, CARD.ipv4]);
    await endless.waitFor(/rdma-ping-10:/);
    stop.abort();
    await server.ended;
    const { stderr } = await endless.exited;
    expect(stderr).toContain('DISCONNECT EVENT');
    const [first, second, last] = server.reports();
    for (const report of [first, second]) expect(report).toMatchObject({ ok: true, pings: 40, checked: 40 });
    expect(last?.pings).toBeGreaterThan(10);
    await expectNothingLeft(world);
  });

  test('the stock server serves two of ours at once', async () => {
    const tool = world.guest.spawn(['rping', '-s', '-P', '-v', '-S', '1000', '-a', '::0']);
    await world.guest.listening(PORT, 'rdma');
    await using our = await OurDevice.open('packet');
    const asking = [GUEST.ipv4, GUEST.ipv6].map((host) =>
      ping(our.device, { ...options('packet', { size: 1000, count: 40 }), host }),
    );
    for (const outcome of await Promise.all(asking)) expect(outcome).toMatchObject({ pings: 40, invalid: 0 });
    await tool.kill();
    await expectNothingLeft(world);
  });

  test('our client is stopped: the stock server hears of it', async () => {
    const tool = world.guest.spawn(['rping', '-s', '-v', '-a', '0.0.0.0']);
    await world.guest.listening(PORT, 'rdma');
    const stop = new AbortController();
    const our = printed();
    const running = runClient(GUEST.ipv4, options('udp', { size: 64, count: 1e9, signal: stop.signal }), our.output);
    await tool.waitFor(/rdma-ping-5:/);
    stop.abort();
    await expect(running).rejects.toThrow(/interrupted after \d+ of/);
    expect((await tool.exited).stderr).toContain('DISCONNECT EVENT');
    await expectNothingLeft(world);
  });
});
