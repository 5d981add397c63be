// Several cards on one interface, distinguished by their addresses or by their queue pair numbers.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Device, openDevice, throwIfFailed } from '../../src/index.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
import { ALL, type End, endOn, pattern } from './pair.js';
import '../link/ownsockets.js';

const MEMORY = 16 * 2 ** 20;

function open(end: string, address: string, seed?: number): Promise<Device> {
  const where = { link: 'packet', interface: end, addresses: [address] } as const;
  return openDevice({ ...where, memoryBytes: MEMORY, ...(seed !== undefined && { seed }) });
}

describeIf(all(netPrivilege(), programPrivilege('ip')), 'two cards on each of two interfaces', () => {
  const devices: Device[] = [];

  beforeAll(async () => {
    sh(
      'ip link add many0 type veth peer name many1; ip link set many0 up; ip link set many1 up; ' +
        'for n in 1 2; do ip addr add 10.97.0.$n/24 dev many0; ip addr add 10.97.0.1$n/24 dev many1; done',
    );
    for (const [end, address] of ['many0 10.97.0.1', 'many0 10.97.0.2', 'many1 10.97.0.11', 'many1 10.97.0.12'].map(
      (line) => line.split(' ') as [string, string],
    ))
      devices.push(await open(end, address));
  });

  afterAll(async () => {
    for (const device of devices) await device.close({ force: true });
    sh('ip link del many0');
  });

  async function connected(a: Device, b: Device): Promise<[End, End]> {
    const [one, other] = [await endOn(a), await endOn(b)];
    // Slow packets on a busy machine must not be taken for lost: a local ACK timeout of 2 s.
    const options = { access: ALL, adaptiveRetransmission: false, timeout: 19 } as const;
    await one.qp.connect(other.qp.endpoint(), options);
    await other.qp.connect(one.qp.endpoint(), options);
    return [one, other];
  }

  const write = async ([a, b]: [End, End], seed: number) => {
    pattern(60000, seed).copy(a.mr.buffer);
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 60000), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next({ timeout: 10000 }));
    expect(b.mr.buffer.subarray(0, 60000).equals(pattern(60000, seed))).toBe(true);
  };

  test('have a connection each at the same time, and get their own packets', async () => {
    const [a1, a2, b1, b2] = devices as [Device, Device, Device, Device];
    const first = await connected(a1, b1);
    const second = await connected(a2, b2);
    await Promise.all([
      (async () => {
        for (let i = 0; i < 10; i++) await write(first, i);
      })(),
      (async () => {
        for (let i = 0; i < 10; i++) await write(second, 100 + i);
      })(),
    ]);
    // Packets for the other card are dropped (drop_qpn), and cause no second response and no retransmission.
    for (const [end] of [first, second]) {
      const { retransmits, rcvd_seq_err, drop_ghost_response } = end.device.counters();
      expect({ retransmits, rcvd_seq_err, drop_ghost_response }).toEqual({
        retransmits: 0,
        rcvd_seq_err: 0,
        drop_ghost_response: 0,
      });
      expect(end.device.counters().rcvd_pkts).toBe(end.qp.counters().rcvd_pkts);
      expect(end.device.counters().drop_qpn).toBeGreaterThan(0);
    }
  });

  test('with the same queue pair numbers get packets by their address', async () => {
    sh('ip addr add 10.97.0.3/24 dev many0; ip addr add 10.97.0.4/24 dev many0');
    await using one = await open('many0', '10.97.0.3', 7);
    await using other = await open('many0', '10.97.0.4', 7);
    const [first, second] = [await connected(one, devices[2] as Device), await connected(other, devices[3] as Device)];
    expect(first[0].qp.qpNum).toBe(second[0].qp.qpNum);
    await Promise.all([write(first, 1), write(second, 2)]);
    expect(one.counters().drop_destination_address).toBeGreaterThan(0);
    for (const end of [...first, ...second]) expect(end.qp.state).toBe('RTS');
  });

  test('with one address get packets by queue pair number', async () => {
    await using one = await open('many0', '10.97.0.1');
    const [first, second] = [
      await connected(devices[0] as Device, devices[2] as Device),
      await connected(one, devices[3] as Device),
    ];
    const dropped = () => [devices[0] as Device, one].map((device) => device.counters().drop_qpn as number);
    const before = dropped();
    await Promise.all([write(first, 4), write(second, 5)]);
    for (const [i, count] of dropped().entries()) expect(count).toBeGreaterThan(before[i] as number);
    for (const [{ qp }] of [first, second]) {
      const { retransmits, rcvd_seq_err, drop_ghost_response } = qp.counters();
      expect({ retransmits, rcvd_seq_err, drop_ghost_response }).toEqual({
        ...{ retransmits: 0, rcvd_seq_err: 0, drop_ghost_response: 0 },
      });
    }
  });

  test('work on when the other one closes', async () => {
    const pair = await connected(devices[0] as Device, devices[2] as Device);
    await (devices[1] as Device).close({ force: true });
    await write(pair, 3);
  });
});
