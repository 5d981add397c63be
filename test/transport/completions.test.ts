import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { type Cq, MemoryHub, type Wc } from '../../src/index.js';
import { CompletionPump, Completions } from '../../src/transport/completions.js';
import { eventually } from '../kit/eventually.js';
import { uncaughtDuring } from '../protocols/message/connectionpair.js';
import { connectedPair, openOn } from '../verbs/pair.js';

test('a pump stops when its queue is closed', async () => {
  const device = await openOn(new MemoryHub());
  const cq = await device.createCq();
  const pump = new CompletionPump(cq, () => {});
  await cq.close();
  const again = vi.spyOn(globalThis, 'setImmediate');
  pump.drain();
  expect(again).not.toHaveBeenCalled();
  again.mockRestore();
  await device.close();
});

test('a pump takes its share of completions once in each iteration of the event loop, however many events come', async () => {
  const cq = queueOf((wcs) => wcs.length);
  const pump = new CompletionPump(cq as unknown as Cq, () => {});
  for (let event = 0; event < 3; event++) pump.drain();
  await setImmediate();
  cq.polls = 0;
  await setImmediate();
  expect(cq.polls).toBe(16);
  cq.isAlive = false;
});

// a poll that finds nothing takes a turn of the device
test('a pump polls again only after a full batch', () => {
  const cq = queueOf((wcs) => wcs.length - 1);
  const pump = new CompletionPump(cq as unknown as Cq, () => {});
  pump.drain();
  expect(cq.polls).toBe(1);
});

/** A completion queue of which each poll returns the number of completions that `take` says. */
function queueOf(take: (wcs: readonly Wc[]) => number) {
  const queue = {
    polls: 0,
    isAlive: true,
    on: () => {},
    arm: () => {},
    createWcs: (count: number) => new Array<Wc>(count),
    pollUnlessFailed(wcs: readonly Wc[]): number {
      queue.polls++;
      return take(wcs);
    },
  };
  return queue;
}

test('an exception of a listener is uncaught, and the completions behind it are delivered', async () => {
  await using pair = await connectedPair();
  const { qp, mr, cq } = pair.a;
  const { addr, rkey } = pair.b.mr.remote;
  for (let wrId = 0; wrId < 3; wrId++)
    qp.postSend({ wrId, opcode: 'RDMA_WRITE', sgList: mr.sge(0, 8), remoteAddr: addr, rkey, signaled: true });
  await eventually(() => expect(qp.query().progress.sendPending).toBe(0));
  const taken: number[] = [];
  const pump = new CompletionPump(cq, ({ wrId }) => {
    taken.push(wrId);
    throw new Error(`from ${wrId}`);
  });
  const uncaught = await uncaughtDuring(async () => {
    pump.drain();
    await setImmediate();
  });
  expect(taken).toEqual([0, 1, 2]);
  expect(uncaught.map(String)).toEqual(['Error: from 0', 'Error: from 1', 'Error: from 2']);
});

/** Takes the completions of end a. */
function completionsOf(cq: Cq, onCompletion: (wc: Wc) => void = () => {}) {
  const taken: number[] = [];
  const failures: string[] = [];
  const completions = new Completions(
    (wc) => {
      taken.push(wc.wrId);
      onCompletion(wc);
    },
    ({ message }) => failures.push(message.split('\n')[0] as string),
  );
  return { completions, pump: completions.takeAll(cq), taken, failures };
}

test('the first completion that fails is reported once, and flushed ones are not', async () => {
  await using pair = await connectedPair();
  const { taken, failures } = completionsOf(pair.a.cq);
  const { qp, mr } = pair.a;
  const { addr, rkey } = pair.b.mr.remote;
  const write = { opcode: 'RDMA_WRITE', sgList: mr.sge(0, 8), remoteAddr: addr, signaled: true } as const;
  qp.postSend({ ...write, wrId: 1, rkey });
  qp.postSend({ ...write, wrId: 2, rkey: (rkey ^ 0xff) >>> 0 });
  qp.postSend({ ...write, wrId: 3, rkey });
  qp.postRecv({ wrId: 4, sgList: mr.sge(0, 8) });
  await eventually(() => expect(failures).toEqual([expect.stringContaining('REM_ACCESS_ERR')]));
  expect(taken).toEqual([1]);
});

test('a queue pair in ERR flushes without a failure', async () => {
  await using pair = await connectedPair();
  const { completions, pump, taken, failures } = completionsOf(pair.a.cq);
  pair.a.qp.postRecv({ wrId: 4, sgList: pair.a.mr.sge(0, 8) });
  await pair.a.qp.modify({ state: 'ERR' });
  pump.drainAll();
  await setImmediate();
  expect([taken, failures, completions.isStopped]).toEqual([[], [], false]);
});

test('an exception of the callback is a failure, and ends the delivery', async () => {
  await using pair = await connectedPair();
  const { completions, pump, taken, failures } = completionsOf(pair.a.cq, () => {
    throw new Error('broken');
  });
  const { addr, rkey } = pair.b.mr.remote;
  for (const wrId of [1, 2])
    pair.a.qp.postSend({ wrId, opcode: 'RDMA_WRITE', sgList: [], remoteAddr: addr, rkey, signaled: true });
  await eventually(() => expect(failures).toEqual(['broken']));
  pump.drainAll();
  completions.fail(new Error('later'));
  expect([taken, failures]).toEqual([[1], ['broken']]);
});

test('a refused work request is a failure; after `stop` nothing is posted and no failure reported', async () => {
  await using pair = await connectedPair();
  const { completions, failures } = completionsOf(pair.a.cq);
  await pair.a.qp.close();
  completions.attempt(() => pair.a.qp.postSend({ opcode: 'SEND', sgList: [] }));
  expect(failures).toEqual([expect.stringMatching(/^EINVAL: qp .* is closed$/)]);
  completions.attempt(() => expect.unreachable('it is posted'));
  const other = completionsOf(pair.b.cq);
  other.completions.stop();
  other.completions.attempt(() => expect.unreachable('it is posted'));
  other.completions.fail(new Error('late'));
  expect(other.failures).toEqual([]);
});
