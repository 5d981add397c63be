// Worker mode with the card as C, in a thread without JavaScript.
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { WordIndex } from '../../src/device/turnlock.js';
import type { WorkerEngine } from '../../src/device/worker.js';
import { type AsyncEvent, type Device, type OpenOptions, openDevice, throwIfFailed } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { breakTurns } from './brokencard.js';
import { ALL, connectedPair, type End, loopback, type Pair } from './pair.js';

const WAIT = { timeout: 20_000 };

const open = (options: OpenOptions = {}): Promise<Device> =>
  openDevice({ mode: 'worker', ...loopback(), memoryBytes: 2 ** 25, ...options });

/** Number of the threads of this process that have no JavaScript. */
function nativeThreads(): number {
  const names = readdirSync('/proc/self/task').map((thread) => {
    try {
      return readFileSync(`/proc/self/task/${thread}/comm`, 'latin1').trim();
    } catch {
      return 'ended';
    }
  });
  return names.filter((name) => name === 'wasm-roce card').length;
}

/** One end sends, the other one receives, while both wait in the event loop. */
async function send(from: End, to: End): Promise<void> {
  to.qp.postRecv({ sgList: to.mr.sge(0, 64) });
  const received = to.cq.next(WAIT);
  from.qp.postSend({ opcode: 'SEND', sgList: from.mr.sge(0, 8) });
  throwIfFailed(await from.cq.next(WAIT));
  throwIfFailed(await received);
}

const pair = (options: OpenOptions = {}): Promise<Pair> =>
  connectedPair({ open: { mode: 'worker', spin: 0, ...options }, connect: { access: ALL, timeout: 17 } });

describe('the card of worker mode', () => {
  afterEach(() => {
    delete process.env.WASM_ROCE_CARD;
  });

  test('is native code, or WebAssembly where JavaScript is needed, and the notes say why', async () => {
    const noteOf = async (options?: OpenOptions) => {
      await using device = await open(options);
      return [device.notes.find((note) => note.startsWith('mode worker')), nativeThreads()];
    };
    const note = (how: string) =>
      `mode worker: the card runs in its own thread, ${how}, and polls for work up to 50 µs before it sleeps`;
    expect(await noteOf()).toEqual([note('as native code'), 1]);
    expect(await noteOf({ trace: 16 })).toEqual([note('as WebAssembly, because it has a trace'), 0]);
    expect(await noteOf({ fault: { seed: 1, tx: { drop: 0 } } })).toEqual([
      note('as WebAssembly, because the link is fault'),
      0,
    ]);
    process.env.WASM_ROCE_CARD = 'wasm';
    expect(await noteOf()).toEqual([note('as WebAssembly, because WASM_ROCE_CARD is wasm'), 0]);
    process.env.WASM_ROCE_CARD = 'fast';
    await expect(open()).rejects.toThrow("WASM_ROCE_CARD is 'fast', must be native or wasm");
    expect(nativeThreads()).toBe(0);
  });

  test('becomes WebAssembly when rules of faults are set, in the middle of a conversation', async () => {
    await using both = await pair();
    const { a, b } = both;
    for (let i = 0; i < 10; i++) await send(a, b);
    expect(nativeThreads()).toBe(2);
    const fault = await a.device.addFault('duplicate every SEND_ONLY');
    expect(nativeThreads()).toBe(1);
    for (let i = 0; i < 10; i++) await send(a, b);
    expect(fault.hits).toBe(10);
    expect(b.qp.counters().duplicate_request).toBeGreaterThanOrEqual(1);
    await fault.remove();
    for (let i = 0; i < 10; i++) await send(b, a);
  });

  test('becomes WebAssembly once for rules that are set at the same time', async () => {
    await using device = await open();
    const rules = ['drop every WRITE', 'drop every READ_REQUEST', 'drop every ACK'];
    await Promise.all(rules.map((rule) => device.addFault(rule)));
    expect(device.faults.map(({ rule }) => rule).sort()).toEqual(rules.sort());
    expect(nativeThreads()).toBe(0);
  });

  test('may be closed while rules of faults are being set', async () => {
    const device = await open();
    const setting = device.addFault('drop every WRITE').catch((error: Error) => error);
    await device.close();
    expect(await setting).toBeDefined();
    await eventually(() => expect(nativeThreads()).toBe(0));
  });
});

test("the application's thread takes turns while the card's thread sleeps", async () => {
  await using both = await pair();
  const { a, b } = both;
  const appTurns = ({ device }: End) => (device.engine as WorkerEngine).turnLock.words[WordIndex.APP_TURNS] as number;
  for (let i = 0; i < 50; i++) {
    await send(a, b);
    await send(b, a);
  }
  expect(Math.min(appTurns(a), appTurns(b))).toBeGreaterThan(0);
  for (const end of [a, b]) expect(end.qp.state).toBe('RTS');
});

test("a trap in a turn of the application's thread is a failure of the device", async () => {
  await using both = await pair();
  const { a, b } = both;
  await send(a, b);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const told = once(a.device, 'event') as Promise<AsyncEvent[]>;
  breakTurns(a.device);
  a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 8) });
  const [event] = await told;
  expect(event?.type === 'DEVICE_FATAL' && event.reason).toMatch(/memory access out of bounds/);
  await expect(a.cq.next()).rejects.toMatchObject({ code: 'EIO' });
  await a.device.close({ force: true });
  await eventually(() => expect(nativeThreads()).toBe(1));
});

test('a trap while the thread is exchanged for one with JavaScript is a failure of the device', async () => {
  const device = await open();
  const told = once(device, 'event') as Promise<AsyncEvent[]>;
  breakTurns(device);
  const setting = device.addFault('drop every WRITE').catch((error: Error) => error);
  const [event] = await told;
  expect(event?.type === 'DEVICE_FATAL' && event.reason).toMatch(/memory access out of bounds/);
  expect(await setting).toBeDefined();
  expect(() => device.counters()).toThrow(/has failed/);
  await device.close({ force: true });
});

test('a message is sent although the program blocks its thread after the post', async () => {
  await using both = await pair();
  const { a, b } = both;
  await send(a, b);
  const wcs = b.cq.createWcs(4);
  for (let i = 0; i < 4; i++) b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  // The card's thread sleeps.
  await new Promise((resolve) => setTimeout(resolve, 20));
  for (let i = 0; i < 4; i++) a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 8) });
  let received = 0;
  for (const until = performance.now() + WAIT.timeout; received < 4 && performance.now() < until; )
    received += b.cq.poll(wcs);
  expect(received).toBe(4);
});
