// Worker mode: a thread of its own runs the card while the program is busy.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import type { Lock } from '../../src/device/locked.js';
import { MemoryHub, openDevice, type Qp, throwIfFailed } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { Random } from '../kit/random.js';
import { ALL, connectedPair, type End, endOn, loopback, type Pair, type PairOptions, pattern } from './pair.js';
import { processResources } from './processresources.js';

const WAIT = { timeout: 20_000 };

const workerPair = ({ open, ...options }: PairOptions = {}): Promise<Pair> =>
  connectedPair({ open: { mode: 'worker', ...open }, connect: { access: ALL, timeout: 17 }, ...options });

/** Polls without ever returning to the event loop. */
function spin(end: End): number {
  const wcs = end.cq.createWcs(1);
  const until = performance.now() + WAIT.timeout;
  while (end.cq.poll(wcs) === 0) if (performance.now() > until) throw new Error('no completion');
  throwIfFailed(wcs[0] as NonNullable<(typeof wcs)[0]>);
  return wcs[0]?.wrId as number;
}

const write = (from: End, to: End, wrId = 0) =>
  from.qp.postSend({
    wrId,
    opcode: 'RDMA_WRITE',
    sgList: from.mr.sge(0, 3000),
    remoteAddr: to.mr.iova,
    rkey: to.mr.rkey,
  });

test('the peer is served while the thread of the program is blocked', async () => {
  const RECEIVES = 40;
  const { addresses } = loopback();
  const program = new URL('./blockedprogram.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, ['--import', 'tsx', program, String(addresses[0]), String(RECEIVES)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => (await lines.next()).value as string;
  await using device = await openDevice({ ...loopback(), memoryBytes: 2 ** 25 });
  const { qp, cq, mr } = await endOn(device);
  const { endpoint, addr, rkey } = JSON.parse(await line());
  await qp.connect(endpoint, { access: ALL });
  child.stdin.write(`${JSON.stringify(qp.endpoint())}\n`);
  expect(await line()).toBe('waits');
  const done = async () => throwIfFailed(await cq.next(WAIT));
  qp.postSend({ opcode: 'SEND', sgList: Buffer.from('the program may block now') });
  await done();
  expect(await line()).toBe('blocked');

  qp.postSend({ opcode: 'RDMA_READ', sgList: mr.sge(0, 23), remoteAddr: addr, rkey });
  await done();
  expect(mr.buffer.toString('latin1', 0, 23)).toBe('what stands here before');
  qp.postSend({ opcode: 'RDMA_WRITE', sgList: Buffer.from('what is written to it'), remoteAddr: addr, rkey });
  await done();
  for (let i = 1; i <= 10; i++) {
    const target = { remoteAddr: addr + 1024, rkey };
    qp.postSend({ opcode: 'ATOMIC_FETCH_AND_ADD', sgList: mr.sge(0, 8), ...target, compareAdd: BigInt(i) });
    await done();
  }
  for (let i = 0; i < RECEIVES; i++) {
    qp.postSend({ opcode: 'SEND', sgList: Buffer.from(`message ${i}`) });
    await done();
  }
  child.stdin.end('\n');
  expect(JSON.parse(await line())).toEqual({
    texts: Array.from({ length: RECEIVES }, (_, i) => `message ${i}`),
    written: 'what is written to itre',
    sum: 55,
  });
  await once(child, 'close');
  expect(child.exitCode).toBe(0);
});

test('poll gets completions and events without the event loop', async () => {
  await using pair = await workerPair();
  const { a, b } = pair;
  pattern(3000).copy(a.mr.buffer);
  for (let i = 0; i < 20; i++) {
    write(a, b, i);
    expect(spin(a)).toBe(i);
  }
  expect(b.mr.buffer.subarray(0, 3000).equals(pattern(3000))).toBe(true);
  // A CQ overrun is reported as an event.
  const small = await a.device.createCq({ cqe: 1 });
  const qp = await a.pd.createQp({ sendCq: small });
  const peer = await b.pd.createQp({ sendCq: b.cq });
  await qp.connect(peer.endpoint());
  await peer.connect(qp.endpoint(), { access: ALL });
  for (let i = 0; i < 8; i++) qp.postSend({ opcode: 'RDMA_WRITE', remoteAddr: 1, rkey: 1 });
  const wcs = small.createWcs(1);
  const until = performance.now() + WAIT.timeout;
  expect(() => {
    while (performance.now() < until) small.poll(wcs);
  }).toThrow(/EIO: cq \d+ overran/);
});

test('both threads wake up after bursts, pauses and waits of all lengths', async () => {
  const MESSAGES = 20_000 * Number(process.env.WASM_ROCE_SCALE ?? 1);
  const random = new Random(Number(process.env.WASM_ROCE_SEED ?? 1));
  // One card sleeps at once, the other by the default `spin`.
  await using device = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25, spin: 0 });
  await using other = await openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25 });
  const [a, b] = [await endOn(device), await endOn(other)];
  // Without an ACK timer nothing is retransmitted, so a missed wake-up would hang the test.
  await a.qp.connect(b.qp.endpoint(), { timeout: 0 });
  await b.qp.connect(a.qp.endpoint(), { timeout: 0 });
  const wcs = a.cq.createWcs(1);
  /** Waits for one completion, by polling or by `next`. */
  const one = async (end: End) => {
    if (random.fraction() < 0.5) return throwIfFailed(await end.cq.next(WAIT));
    for (const until = performance.now() + WAIT.timeout; end.cq.poll(wcs) === 0; )
      if (performance.now() > until) throw new Error('no completion');
    throwIfFailed(wcs[0] as NonNullable<(typeof wcs)[0]>);
  };
  const pause = async () => {
    const kind = random.fraction();
    if (kind < 0.02) await new Promise((resolve) => setTimeout(resolve, 1));
    else if (kind < 0.5) for (const until = performance.now() + 0.2 * random.fraction(); performance.now() < until; );
  };
  for (let sent = 0; sent < MESSAGES; ) {
    const burst = 1 + Math.floor(32 * random.fraction() ** 3);
    const [from, to] = random.fraction() < 0.5 ? [a, b] : [b, a];
    for (let i = 0; i < burst; i++) to.qp.postRecv({ sgList: to.mr.sge(64 * i, 64) });
    await pause();
    for (let i = 0; i < burst; i++) from.qp.postSend({ opcode: 'SEND', sgList: from.mr.sge(0, 32) });
    await pause();
    for (let i = 0; i < burst; i++) await one(to);
    for (let i = 0; i < burst; i++) await one(from);
    sent += burst;
  }
  for (const end of [a, b]) expect(end.qp.state).toBe('RTS');
}, 120_000);

const collectGarbage: () => void = (() => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
})();

test('control calls and garbage collection are safe during traffic', async () => {
  await using pair = await workerPair({ qp: { maxSendWr: 64 } });
  const { a, b } = pair;
  pattern(3000).copy(a.mr.buffer);
  let isOver = false;
  let written = 0;
  const traffic = (async () => {
    for (let i = 0; i < 32; i++) write(a, b, i);
    for await (const wc of a.cq) {
      throwIfFailed(wc);
      if (++written % 64 === 0) {
        b.mr.buffer.copyWithin(0, 8192, 8192 + 3000);
        await new Promise((resolve) => setImmediate(resolve));
      }
      if (isOver) return;
      write(a, b);
    }
  })();
  for (let round = 0; round < 60; round++) {
    for (const { device, pd, cq } of [a, b]) {
      const mr = await pd.regMr(4096 + 64 * round, { access: ALL });
      const qp: Qp = await pd.createQp({ sendCq: cq });
      await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
      qp.postRecv({ sgList: mr.sge(0, 64) });
      expect(qp.query().state).toBe('INIT');
      expect(device.counters().sent_pkts).toBeGreaterThanOrEqual(0);
      await qp.close();
      await mr.close();
    }
    if (round % 10 === 0) collectGarbage();
    const before = written;
    while (written === before) await new Promise((resolve) => setImmediate(resolve));
  }
  isOver = true;
  await traffic;
  for (const end of [a, b]) expect(end.qp.state).toBe('RTS');
}, 60_000);

test('counters, trace and capture are those of the thread of the card', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  const file = join(folder, 'worker.pcapng');
  {
    await using pair = await workerPair({ open: { pcap: file, trace: 16, fault: { seed: 2, tx: { duplicate: 1 } } } });
    const { a, b } = pair;
    expect([a.device.mode, a.device.notes.join()]).toEqual([
      'worker',
      expect.stringMatching(/mode worker: the card runs in its own thread/),
    ]);
    write(a, b);
    throwIfFailed(await a.cq.next(WAIT));
    const wc = a.cq.createWcs(1);
    expect(a.cq.poll(wc)).toBe(0);
    const { 'link.fault_tx_duplicate': doubled, 'link.pcap_frames': captured, sent_pkts } = a.device.counters();
    expect(doubled).toBe(sent_pkts);
    expect(captured).toBeGreaterThanOrEqual(2 * (sent_pkts as number));
    expect(b.device.counters().rcvd_pkts).toBeGreaterThanOrEqual(1);
    a.qp.postSend({ opcode: 'RDMA_READ', sgList: a.mr.sge(0, 8), remoteAddr: 0, rkey: 0 });
    const failed = await a.cq.next(WAIT);
    const { packets } = failed.explain();
    expect(packets.at(-1)).toMatch(/ 0\.000 ms {2}came .* NAK: remote access error/);
    expect(packets.some((text) => /sent .* RDMA_READ_REQUEST/.test(text))).toBe(true);
  }
  expect(readFileSync(file).readUInt32LE(0)).toBe(0x0a0d0d0a);
  rmSync(folder, { recursive: true });
});

test('closed devices leave no threads, files or sockets', async () => {
  const cycle = async () => {
    await using pair = await workerPair();
    write(pair.a, pair.b);
    if (Math.random() < 0.5) throwIfFailed(await pair.a.cq.next(WAIT));
  };
  await cycle();
  const before = await processResources();
  for (let round = 0; round < 10 * Number(process.env.WASM_ROCE_SCALE ?? 1); round++)
    await Promise.all([cycle(), cycle()]);
  expect(await processResources()).toEqual(before);
}, 120_000);

describe('worker mode refuses', () => {
  const refused = (options: object) =>
    expect(openDevice({ mode: 'worker', memoryBytes: 2 ** 25, ...options } as Parameters<typeof openDevice>[0]))
      .rejects;

  test('links that work on one thread only', async () => {
    const message = /EOPNOTSUPP: the memory link works only in the thread that opened it: use mode 'inline'/;
    await refused({ link: 'memory' }).toThrow(message);
    await refused({ link: memoryLink(new MemoryHub(), { addresses: ['10.0.0.1'] }) }).toThrow(message);
    await refused({ ...loopback(), pcap: new PassThrough() }).toThrow(
      "EOPNOTSUPP: a device in mode 'worker' captures to a file only, not to a stream",
    );
  });

  test('unknown modes, and wrong spin times', async () => {
    await refused({ mode: 'thread' }).toThrow("mode is 'thread', must be 'inline' or 'worker'");
    await refused({ spin: '5' }).toThrow("spin is '5', must be microseconds");
    await refused({ spin: -1 }).toThrow('spin is -1, must be microseconds from 0 to Infinity');
    await refused({ spin: Number.NaN }).toThrow(RangeError);
  });
});

describe('a process in worker mode', () => {
  /** Runs a program with two connected devices in worker mode. @returns its exit status */
  function run(program: string, open = '{}'): number | string {
    const pair = new URL('./pair.ts', import.meta.url).href;
    const source = `import { connectedPair } from '${pair}';
      const { a, b } = await connectedPair({ open: { mode: 'worker', ...${open} } }); ${program}`;
    try {
      execFileSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', source], {
        timeout: 20_000,
        stdio: 'pipe',
      });
    } catch (error) {
      const { status, signal } = error as { status: number | null; signal: string };
      return status ?? signal;
    }
    return 0;
  }

  test('is not kept running by idle devices', () => {
    expect(run('')).toBe(0);
  });

  test('is not kept running by devices that spin', () => {
    const ends = Array.from({ length: 5 }, () => run('setTimeout(() => process.exit(7), 20);', '{ spin: Infinity }'));
    expect(ends).toEqual([7, 7, 7, 7, 7]);
  });

  test('is kept running by a wait for a completion, and by a connected queue pair with keepAlive', () => {
    expect(run('setTimeout(() => process.exit(7), 300).unref(); await a.cq.next();')).toBe(7);
    expect(run('setTimeout(() => process.exit(7), 300).unref();', '{ keepAlive: true }')).toBe(7);
    expect(run('await a.qp.close(); await b.qp.close();', '{ keepAlive: true }')).toBe(0);
  });

  test('is ended by an uncaught error, and by Ctrl-C', () => {
    expect(run(`setTimeout(() => { throw new Error('nobody catches it'); }, 5); await a.cq.next();`)).toBe(1);
    expect(run(`setTimeout(() => process.kill(process.pid, 'SIGINT'), 5); await a.cq.next();`)).toBe('SIGINT');
  });

  test('may end a thread that has devices', async () => {
    const index = new URL('../../dist/index.js', import.meta.url).href;
    const { addresses } = loopback();
    const program = `import { openDevice } from '${index}'; import { parentPort } from 'node:worker_threads';
      const device = await openDevice({ mode: 'worker', link: 'udp', addresses: ['${addresses[0]}'], memoryBytes: 2 ** 25 });
      parentPort.postMessage('open'); await (await device.createCq()).next();`;
    const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`), { execArgv: [] });
    expect(await once(thread, 'message')).toEqual(['open']);
    await thread.terminate();
    // The address is free again.
    await using again = await openDevice({ link: 'udp', addresses, memoryBytes: 2 ** 25 });
    expect(again.queryPort().state).toBe('ACTIVE');
  });
});

test('a thread with a device may be ended within a call of the card', async () => {
  const index = new URL('../../dist/index.js', import.meta.url).href;
  const { addresses } = loopback();
  const program = `import { openDevice } from '${index}'; import { parentPort } from 'node:worker_threads';
    const device = await openDevice({ mode: 'worker', link: 'udp', addresses: ['${addresses[0]}'], memoryBytes: 2 ** 25 });
    device.card.exclusively(() => { parentPort.postMessage('within'); for (;;); });`;
  const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`), { execArgv: [] });
  expect(await once(thread, 'message')).toEqual(['within']);
  await thread.terminate();
  await using again = await openDevice({ link: 'udp', addresses, memoryBytes: 2 ** 25 });
  expect(again.queryPort().state).toBe('ACTIVE');
});

test('modify waits for the end of a turn once', async () => {
  await using device = await openDevice({ ...loopback(), memoryBytes: 2 ** 25, mode: 'worker' });
  const cq = await device.createCq({ cqe: 8 });
  const pd = await device.allocPd();
  const qp = await pd.createQp({ sendCq: cq });
  const lock = device.card.lock as Lock;
  const [acquire, release] = [lock.acquire.bind(lock), lock.release.bind(lock)];
  let [depth, waits] = [0, 0];
  Object.assign(lock, {
    acquire: () => {
      if (depth++ === 0) waits++;
      acquire();
    },
    release: () => {
      depth--;
      release();
    },
  });
  await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: [] });
  expect([waits, depth]).toEqual([1, 0]);
  await expect(qp.modify({ state: 'RTS', sqPsn: 0 })).rejects.toThrow('EINVAL');
  expect([waits, depth]).toEqual([2, 0]);
});
