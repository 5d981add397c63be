// Valkey over RDMA: its server and our clients, and its clients and our proxy.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type RedisOptions, Valkey } from 'iovalkey';
import { createClient } from 'redis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connect, connector, createBridge, createProxy } from '../../src/valkey.js';
import { Random } from '../kit/random.js';
import { OurDevice } from './card.js';
import { describeWithRxe, type Environment } from './environment.js';
import type { GuestCommand } from './guest/command.js';
import { CARD, GUEST } from './guest/network.js';
import { findValkey } from './guest/valkey.js';

const PORT = 6379;
const programs = findValkey();

/** Puts the programs of Valkey into the guest. */
async function install({ guest }: Environment, ...names: readonly string[]): Promise<void> {
  for (const name of names) {
    const input = readFileSync(join(programs as string, name));
    await guest.run(`cat > /usr/bin/${name} && chmod +x /usr/bin/${name}`, { input, timeout: 60_000 });
  }
}

/** A server in the guest, over RDMA and TCP. Without persistence: it accepts no RDMA while it has a child process. */
async function startServer({ guest }: Environment): Promise<GuestCommand> {
  const words = `valkey-server --port ${PORT} --protected-mode no --bind 0.0.0.0 --save --appendonly no`;
  const rdma = `--rdma-port ${PORT} --rdma-bind ${GUEST.ipv4} --rdma-rx-size 262144 --enable-debug-command yes`;
  const server = guest.spawn([
    ...words.split(' ').flatMap((word) => (word === '--save' ? [word, ''] : [word])),
    ...rdma.split(' '),
  ]);
  await guest.listening(PORT, 'rdma');
  return server;
}

/** Commands on a small number of keys of all kinds; the replies do not depend on time. */
function command(random: Random): [string, ...string[]] {
  const key = (kind: string) => `${kind}${random.below(500)}`;
  const value = () => 'v'.repeat(random.below(random.pick([4, 40, 4000]))) + random.below(1000);
  switch (random.below(12)) {
    case 0:
      return ['SET', key('s'), value()];
    case 1:
      return ['GET', key('s')];
    case 2:
      return ['APPEND', key('s'), value()];
    case 3:
      return ['INCRBY', key('n'), `${random.below(100)}`];
    case 4:
      return ['LPUSH', key('l'), value(), value()];
    case 5:
      return ['RPOP', key('l')];
    case 6:
      return ['LRANGE', key('l'), '0', '5'];
    case 7:
      return ['HSET', key('h'), `f${random.below(20)}`, value()];
    case 8:
      return ['HGET', key('h'), `f${random.below(20)}`];
    case 9:
      return ['SADD', key('t'), `${random.below(100)}`];
    case 10:
      return ['ZADD', key('z'), `${random.below(1000)}`, `m${random.below(50)}`];
    default:
      return ['DEL', key(random.pick(['s', 'l', 'h', 't', 'z']))];
  }
}

/** Executes commands in pipelines of various lengths. @returns a hash of all replies, and the digest of all data */
async function workload(valkey: Valkey, count: number, seed: number): Promise<{ replies: string; data: unknown }> {
  const random = new Random(seed);
  const replies = createHash('sha256');
  await valkey.flushall();
  for (let done = 0; done < count; ) {
    const batch = Math.min(count - done, 1 + random.below(random.pick([2, 50, 1000])));
    const commands = Array.from({ length: batch }, () =>
      command(random).map((word, i) => (i === 0 ? word.toLowerCase() : word)),
    );
    for (const [error, reply] of (await valkey.pipeline(commands).exec()) ?? []) {
      if (error) throw error;
      replies.update(JSON.stringify(reply ?? null));
    }
    done += batch;
  }
  return { replies: replies.digest('hex'), data: await valkey.call('DEBUG', 'DIGEST') };
}

describe.skipIf(programs === undefined)('Valkey', () => {
  describeWithRxe('its server, and our clients', 1500, (environment) => {
    let our: OurDevice;
    let server: GuestCommand;
    const open: Valkey[] = [];
    beforeAll(async () => {
      our = await OurDevice.open('packet', { memoryBytes: 512 * 2 ** 20 });
      await install(environment, 'valkey-server');
    });
    afterAll(() => our[Symbol.asyncDispose]());
    // a server for each test: what large values and many clients leave is much of the guest's memory
    beforeEach(async () => {
      server = await startServer(environment);
    });
    afterEach(async () => {
      for (const valkey of open.splice(0)) valkey.disconnect();
      await server.kill();
    });

    const there = () => ({ device: our.device, host: GUEST.ipv4 });
    const overRdma = (options: RedisOptions = {}, sizes = {}) => {
      const valkey = new Valkey({ Connector: connector({ ...there(), ...sizes }) as never, ...options });
      open.push(valkey);
      valkey.on('error', () => {});
      return valkey;
    };

    test('a socket exchanges commands and replies, and QUIT ends it', async () => {
      const socket = connect(there());
      socket.setEncoding('utf8');
      await once(socket, 'connect');
      expect([socket.remoteAddress, socket.remotePort]).toEqual([GUEST.ipv4, PORT]);
      socket.write('PING\r\n');
      expect((await once(socket, 'data'))[0]).toBe('+PONG\r\n');
      // The server disconnects at once, and with that drops a reply which rxe has not sent yet.
      const replies: string[] = [];
      socket.on('data', (reply: string) => replies.push(reply));
      const closed = once(socket, 'close');
      socket.end('QUIT\r\n');
      expect(await closed).toEqual([false]);
      expect(['', '+OK\r\n']).toContain(replies.join(''));
    });

    test('iovalkey: 100,000 commands have the same results as over TCP, also with 1 % loss', async () => {
      const tcp = new Valkey({ host: GUEST.ipv4, port: PORT });
      open.push(tcp);
      const expected = await workload(tcp, 100_000, 1);
      expect(await workload(overRdma(), 100_000, 1)).toEqual(expected);
      await environment.guest.run('tc qdisc add dev eth0 root netem loss 1%');
      try {
        expect(await workload(overRdma(), 100_000, 1)).toEqual(expected);
      } finally {
        await environment.guest.run('tc qdisc del dev eth0 root');
      }
    }, 240_000);

    test('values of 64 MB arrive', async () => {
      const valkey = overRdma();
      const value = randomBytes(64_000_000);
      await valkey.set('large', value);
      expect((await valkey.getBuffer('large'))?.equals(value)).toBe(true);
      await valkey.del('large');
    }, 120_000);

    test('Pub/Sub, blocking commands and 1000 commands at once work', async () => {
      const [valkey, subscriber] = [overRdma(), overRdma()];
      await subscriber.subscribe('news');
      const message = once(subscriber, 'message');
      await valkey.publish('news', 'hello');
      expect(await message).toEqual(['news', 'hello']);
      const popped = overRdma().blpop('queue', 10);
      await valkey.rpush('queue', 'job');
      expect(await popped).toEqual(['queue', 'job']);
      const all = await Promise.all(Array.from({ length: 1000 }, () => valkey.incr('counter')));
      expect(all.at(-1)).toBe(1000);
    });

    test('more commands than the server has receives wait for a slow one', async () => {
      const valkey = overRdma();
      await valkey.ping();
      const slow = valkey.call('DEBUG', 'SLEEP', '1');
      const all: Promise<unknown>[] = [];
      for (let i = 0; i < 5000; i++) {
        all.push(valkey.incr('slow'));
        if (i % 10 === 0) await new Promise(setImmediate);
      }
      await slow;
      expect((await Promise.all(all)).at(-1)).toBe(5000);
    }, 30_000);

    test('100 clients at once work', async () => {
      // the memory of each end is that of the other one too, and the guest has little of it
      const small = { receiveBytes: 65_536, sendBytes: 65_536 };
      const clients = Array.from({ length: 100 }, () => overRdma({}, small));
      const counts = await Promise.all(
        clients.map(async (client, i) => {
          for (let j = 0; j < 20; j++) await client.hset('clients', `${i}.${j}`, 'x'.repeat(j * 100));
          return client.hlen('clients');
        }),
      );
      expect(Math.max(...counts)).toBe(2000);
      for (const client of clients) client.disconnect();
    }, 60_000);

    test('redis (node-redis) works by a bridge', async () => {
      await using bridge = await createBridge(there());
      const client = createClient({ socket: { path: bridge.path, tls: false } });
      client.on('error', () => {});
      await client.connect();
      await client.set('bridge', 'x'.repeat(1_000_000));
      expect((await client.get('bridge'))?.length).toBe(1_000_000);
      expect(await client.multi().incr('bridged').incr('bridged').exec()).toEqual([1, 2]);
      await client.close();
    });

    test('clients connect again after the server was killed and restarted', async () => {
      const valkey = overRdma({ retryStrategy: () => 100 });
      await valkey.set('before', '1');
      const closed = once(valkey, 'close');
      await server.kill();
      await closed;
      const reply = valkey.ping();
      server = await startServer(environment);
      expect(await reply).toBe('PONG');
      expect(await valkey.exists('before')).toBe(0);
    }, 60_000);
  });

  describeWithRxe('its clients, and our proxy', 1500, (environment) => {
    test('valkey-cli and valkey-benchmark work', async () => {
      await using our = await OurDevice.open('packet', { memoryBytes: 512 * 2 ** 20 });
      await install(environment, 'valkey-server', 'valkey-cli', 'valkey-benchmark');
      const words = `valkey-server --port ${PORT} --protected-mode no --bind 0.0.0.0 --save`.split(' ');
      const server = environment.guest.spawn([...words, '', '--appendonly', 'no']);
      await environment.guest.listening(PORT);
      await using _proxy = await createProxy({ device: our.device, to: { host: GUEST.ipv4, port: PORT } });
      const cli = (...args: string[]) => environment.guest.run(['valkey-cli', '--rdma', '-h', CARD.ipv4, ...args]);
      expect(await cli('SET', 'a', 'b')).toBe('OK\n');
      expect(await cli('GET', 'a')).toBe('b\n');
      const input = randomBytes(5_000_000).toString('hex');
      expect(
        await environment.guest.run(`valkey-cli --rdma -h ${CARD.ipv4} -x SET large`, { input, timeout: 60_000 }),
      ).toBe('OK\n');
      expect(await cli('STRLEN', 'large')).toBe('10000000\n');
      const sum = await environment.guest.run(`valkey-cli --rdma -h ${CARD.ipv4} GET large | tr -d '\\n' | sha256sum`);
      expect(sum.split(' ')[0]).toBe(createHash('sha256').update(input).digest('hex'));
      const bench = await environment.guest.run(
        `valkey-benchmark --rdma -h ${CARD.ipv4} -t set,get,lpush -n 20000 -c 40 -P 16 -q`,
        { timeout: 60_000 },
      );
      expect(bench).toMatch(/GET: [0-9.]+ requests per second/);
      await server.kill();
    }, 180_000);
  });
});
