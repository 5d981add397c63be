// Rules of faults of an open device: they hit the chosen packets, come and go, and pretend events of the host.
import { expect, test } from 'vitest';
import type { AsyncEvent, Device, DeviceFault } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, type End, type Pair, pattern } from './pair.js';

const WAIT = { timeout: 20_000 };
const BYTES = 16_384;
/** A quarter of a second: in real time, packets that are sent again for no reason would change the counts of hits. */
const CONNECT = { pathMtu: 1024, timeout: 16, retryCnt: 7 } as const;
/** Messages of 16 packets: the fifth in the middle is packet 6. */
const OPERATIONS = ['RDMA_WRITE', 'RDMA_READ'] as const;

/** Transfers 16 KiB from one end's memory to that of the other. @returns whether it has arrived */
async function transfer({ a, b }: Pair, opcode: (typeof OPERATIONS)[number], seed = 1): Promise<boolean> {
  const [from, to] = opcode === 'RDMA_WRITE' ? [a.mr, b.mr] : [b.mr, a.mr];
  const bytes = pattern(BYTES, seed);
  bytes.copy(from.buffer);
  const { addr: remoteAddr, rkey } = b.mr.remote;
  a.qp.postSend({ opcode, sgList: a.mr.sge(0, BYTES), remoteAddr, rkey });
  const { ok } = await a.cq.next(WAIT);
  return ok && bytes.equals(to.buffer.subarray(0, BYTES));
}

test.each([
  ['RDMA_WRITE', 'drop the 5th WRITE_MIDDLE of qp 1, 2nd time too', 2],
  ['RDMA_WRITE', 'corrupt the 5th WRITE_MIDDLE', 1],
  ['RDMA_WRITE', 'reorder by 2 the 3rd WRITE_MIDDLE', 1],
  ['RDMA_WRITE', 'duplicate every WRITE_MIDDLE', 14],
  ['RDMA_WRITE', 'mark ECN every WRITE_MIDDLE', 14],
  ['RDMA_READ', 'drop the 5th READ_RESPONSE_MIDDLE received, 2nd time too', 2],
  ['RDMA_READ', 'corrupt the 1st READ_RESPONSE_LAST received', 1],
  ['RDMA_READ', 'mark ECN every READ_RESPONSE_MIDDLE received', 14],
  ['RDMA_READ', 'rewrite ip.ttl=3 in every READ_RESPONSE received', 16],
  ['RDMA_READ', 'delay by 100us the 1st READ_REQUEST', 1],
] as const)('%s recovers from a rule that is set while the device is open: %s', async (opcode, rule, hits) => {
  await using pair = await connectedPair({ connect: CONNECT });
  expect(await transfer(pair, opcode, 1)).toBe(true);
  const fault = await pair.a.device.addFault(rule);
  expect(await transfer(pair, opcode, 2)).toBe(true);
  expect(fault.hits).toBe(hits);
  expect(pair.a.device.counters()).toMatchObject({ 'link.fault_rule_1_hits': hits });
  expect(pair.a.qp.counters().drop_icrc).toBe(rule.startsWith('corrupt') && opcode === 'RDMA_READ' ? 1 : 0);
  await fault.remove();
  expect(await transfer(pair, opcode, 3)).toBe(true);
  expect({ hits: fault.hits, faults: pair.a.device.faults.length }).toEqual({ hits, faults: 0 });
});

test('a rule stops the traffic until it is removed, and another rule keeps its count meanwhile', async () => {
  await using pair = await connectedPair({ connect: CONNECT });
  const { device } = pair.a;
  const marks = await device.addFault('mark ECN every WRITE');
  const block = await device.addFault('drop every ACK received');
  const done = transfer(pair, 'RDMA_WRITE');
  await eventually(() => expect(block.hits).toBeGreaterThan(1));
  expect(device.faults.map(({ id, rule }) => `${id} ${rule}`)).toEqual([
    '1 mark ECN every WRITE',
    '2 drop every ACK received',
  ]);
  await block.remove();
  await block.remove();
  expect(await done).toBe(true);
  expect(marks.hits).toBe(16);
});

test('a rule by chance hits the same packets with the same seed, each transmission by itself', async () => {
  const hitsWith = async (seed: number) => {
    await using pair = await connectedPair({ connect: CONNECT });
    const fault = await pair.a.device.addFault('mark ECN 25 % of WRITE_MIDDLEs of qp 1', { seed });
    for (let i = 0; i < 4; i++) expect(await transfer(pair, 'RDMA_WRITE', i)).toBe(true);
    return fault.hits;
  };
  const [one, again] = [await hitsWith(7), await hitsWith(7)];
  expect(one).toBe(again);
  expect(one).toBeGreaterThan(4);
  expect(one).toBeLessThan(28);
});

test('the option fault has rules too', async () => {
  const rules = ['drop the 2nd WRITE_MIDDLE', 'drop the 1st ACK received'];
  await using pair = await connectedPair({ connect: CONNECT, open: { fault: { rules } } });
  expect(await transfer(pair, 'RDMA_WRITE')).toBe(true);
  expect(pair.a.device.faults.map(({ hits }) => hits)).toEqual([1, 1]);
});

test('a wrong rule is refused with the mistake, and leaves nothing', async () => {
  await using pair = await connectedPair();
  const { device } = pair.a;
  const refusals: [string, string][] = [
    ['drop the 5th WRITE_MIDLE', 'fault:1:14: no operation WRITE_MIDLE'],
    ['drop 101 % of *', 'the percentage is 101, must be 0 to 100'],
    ['port up', "rule is 'port up', must be 'port down', 'gid add ADDRESS'"],
    ['gid add 10.0.0.256', "rule is 'gid add 10.0.0.256', must be"],
    ['gid move 10.0.0.1', "rule is 'gid move 10.0.0.1', must be"],
  ];
  for (const [rule, message] of refusals) await expect(device.addFault(rule)).rejects.toThrow(message);
  await expect(device.addFault(1 as never)).rejects.toThrow('rule is 1, must be text');
  await expect(device.addFault('drop every *', { seed: 1.5 })).rejects.toThrow('seed is 1.5, must be an integer');
  expect(device.faults.length).toBe(0);
  for (let i = 0; i < 16; i++) await device.addFault('drop the 9th ATOMIC_ACK received');
  await expect(device.addFault('drop the 1st *')).rejects.toThrow(
    'ENOSPC: the device has 16 rules of faults, the most',
  );
  await device.close({ force: true });
  await expect(device.addFault('drop the 1st *')).rejects.toThrow('EINVAL');
});

function eventsOf(device: Device): AsyncEvent['type'][] {
  const types: AsyncEvent['type'][] = [];
  device.on('event', ({ type }) => types.push(type));
  return types;
}

const gidsOf = ({ device }: End) => device.gids.map(({ index, address }) => `${index} ${address}`);

test('a port that a rule takes down loses all packets, and is active again without it', async () => {
  await using pair = await connectedPair({ connect: CONNECT });
  const { device } = pair.a;
  const types = eventsOf(device);
  const down = await device.addFault('port down');
  expect([device.queryPort().state, device.stat().state]).toEqual(['DOWN', 'DOWN']);
  const before = device.counters()['link.tx_frames'];
  const done = transfer(pair, 'RDMA_WRITE');
  await eventually(() => expect(pair.a.qp.counters().local_ack_timeout_err).toBeGreaterThan(0));
  expect(device.counters()['link.tx_frames']).toBe(before);
  await down.remove();
  expect([device.queryPort().state, await done]).toEqual(['ACTIVE', true]);
  expect(types).toEqual(['PORT_ERR', 'PORT_ACTIVE']);
});

test('rules add, remove and move GIDs, one after the other, and their end restores the table', async () => {
  await using pair = await connectedPair();
  const { device } = pair.a;
  const before = gidsOf(pair.a);
  const own = device.gids.map(({ address }) => address);
  const types = eventsOf(device);
  const faults: DeviceFault[] = [];
  const tables: string[][] = [];
  for (const rule of ['gid add 10.9.9.9', `gid move 10.9.9.9 to 0`, `gid remove ${own[0]}`]) {
    faults.push(await device.addFault(rule));
    tables.push(device.gids.map(({ address }) => address));
  }
  expect(tables).toEqual([
    [...own, '10.9.9.9'],
    ['10.9.9.9', ...own],
    ['10.9.9.9', ...own.slice(1)],
  ]);
  for (const fault of faults.reverse()) await fault.remove();
  expect(gidsOf(pair.a)).toEqual(before);
  await eventually(() => expect(types).toEqual(Array(6).fill('GID_CHANGE')));
});

test('a device fails by a rule as it does by itself', async () => {
  await using pair = await connectedPair();
  const { device, qp, mr } = pair.a;
  const types = eventsOf(device);
  await device.addFault('device failure');
  await eventually(() => expect(types).toEqual(['DEVICE_FATAL']));
  expect(() => qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 8) })).toThrow("the rule of faults 'device failure'");
});
