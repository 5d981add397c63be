/** The channels of node:diagnostics_channel for packets that are retransmitted and dropped. */
import diagnosticsChannel from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Counters, type Device, EventType, explainDrop, type Qp, throwIfFailed } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, type End, type Pair } from './pair.js';

interface Retransmit {
  readonly device: Device;
  readonly qp: Qp;
  readonly peer: { readonly address: string; readonly qpNum: number };
  readonly packets: number;
  readonly causes: Counters;
}
interface Drop {
  readonly device: Device;
  readonly counter: string;
  readonly packets: number;
  readonly reason: string;
}

let retransmits: Retransmit[] = [];
let drops: Drop[] = [];
const onRetransmit = (message: unknown) => void retransmits.push(message as Retransmit);
const onDrop = (message: unknown) => void drops.push(message as Drop);
beforeEach(() => {
  [retransmits, drops] = [[], []];
  diagnosticsChannel.subscribe('wasm-roce:qp.retransmit', onRetransmit);
  diagnosticsChannel.subscribe('wasm-roce:drop', onDrop);
});
afterEach(unsubscribe);

function unsubscribe(): void {
  diagnosticsChannel.unsubscribe('wasm-roce:qp.retransmit', onRetransmit);
  diagnosticsChannel.unsubscribe('wasm-roce:drop', onDrop);
}

const lossy = (drop: number) => connectedPair({ open: { fault: { seed: 7, both: { drop } } } });
const sum = (messages: readonly { readonly packets: number }[]) => messages.reduce((n, { packets }) => n + packets, 0);

async function write({ a, b }: Pair, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(), remoteAddr: b.mr.remote.addr, rkey: b.mr.remote.rkey });
    throwIfFailed(await a.cq.next());
  }
}

/** Sends packets with the wrong Q_Key from one UD queue pair to another. */
async function misdirect(from: End, to: End, count: number): Promise<void> {
  const target = await to.pd.createQp({ type: 'UD', sendCq: to.cq });
  await target.activate({ qkey: 1 });
  const source = await from.pd.createQp({ type: 'UD', sendCq: from.cq });
  await source.activate({ qkey: 2 });
  const ah = await from.pd.createAh({ grh: { dgid: to.device.gids[0]?.gid as string } });
  for (let i = 0; i < count; i++) {
    source.postSend({ opcode: 'SEND', ah, remoteQpn: target.qpNum, remoteQkey: 2 });
    throwIfFailed(await from.cq.next());
  }
}

test('retransmitted packets are reported with their queue pair, their peer and the causes, and all of them', async () => {
  await using pair = await lossy(0.05);
  const { a, b } = pair;
  await write(pair, 40);
  await sleep(1100);
  await write(pair, 40);
  await eventually(() => expect(sum(retransmits)).toBe(a.qp.counters().retransmits));
  expect(retransmits.length).toBeGreaterThan(1);
  for (const { device, qp, peer, packets, causes } of retransmits) {
    expect([device === a.device, qp === a.qp]).toEqual([true, true]);
    expect([b.device.gids.some(({ address }) => address === peer.address), peer.qpNum]).toEqual([true, b.qp.qpNum]);
    expect(packets).toBeGreaterThan(0);
    expect(Object.values(causes).every((count) => count > 0)).toBe(true);
  }
  const { rcvd_seq_err } = a.qp.counters();
  expect(retransmits.reduce((n, { causes }) => n + (causes.rcvd_seq_err ?? 0), 0)).toBe(rcvd_seq_err);
});

test('dropped packets are reported with their counter and its reason, once a second', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  await misdirect(a, b, 5);
  await eventually(() => expect(drops.length).toBe(1));
  expect({ ...drops[0], device: drops[0]?.device === b.device }).toEqual({
    device: true,
    counter: 'drop_qkey',
    packets: 5,
    reason: explainDrop('drop_qkey'),
  });
  await misdirect(a, b, 3);
  await eventually(() => expect(drops.length).toBe(2));
  expect(drops[1]).toMatchObject({ counter: 'drop_qkey', packets: 3 });
  expect(retransmits).toEqual([]);
});

test('losses within the last second are reported when the queue pair or the device closes', async () => {
  const pair = await lossy(0.05);
  const { a, b } = pair;
  await write(pair, 40);
  const count = a.qp.counters().retransmits;
  expect(count).toBeGreaterThan(0);
  await a.qp.close();
  await misdirect(a, b, 10);
  await eventually(() => expect(b.device.counters().drop_qkey).toBeGreaterThan(0));
  await pair[Symbol.asyncDispose]();
  await sleep(0);
  expect(sum(retransmits)).toBe(count);
  expect(drops.map(({ counter }) => counter)).toContain('drop_qkey');
});

test('losses whose event found no room in the ring of events are reported as well', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const { engine } = b.device;
  const { onEvent } = engine;
  engine.onEvent = (type, handle) => {
    if (type !== EventType.LOSS) onEvent(type, handle);
  };
  await misdirect(a, b, 5);
  await sleep(2000);
  expect(drops).toEqual([]);
  onEvent(EventType.MISSED, 0);
  await eventually(() => expect(sum(drops)).toBe(5));
});

test('a device without losses publishes nothing', async () => {
  await using pair = await connectedPair();
  await write(pair, 10);
  await sleep(2500);
  expect([retransmits, drops]).toEqual([[], []]);
});

test('losses before a subscription are in its first message', async () => {
  unsubscribe();
  await using pair = await lossy(0.05);
  await write(pair, 40);
  await sleep(3000);
  const before = pair.a.qp.counters().retransmits as number;
  diagnosticsChannel.subscribe('wasm-roce:qp.retransmit', onRetransmit);
  await write(pair, 40);
  await eventually(() => expect(sum(retransmits)).toBe(pair.a.qp.counters().retransmits));
  expect(retransmits[0]?.packets).toBeGreaterThan(before);
});
