// Worker mode on interfaces: datagrams, multicast groups and interface changes, while another thread moves the frames.
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type AsyncEvent, openDevice, type Qp, throwIfFailed } from '../../src/index.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
import { ALL, type End, endOn, pattern } from './pair.js';
import '../link/ownsockets.js';

const WAIT = { timeout: 20_000 };
const GROUP = '239.1.2.3';

describeIf(all(netPrivilege(), programPrivilege('ip')), 'two interfaces', () => {
  beforeAll(() => {
    sh(
      'ip link add thread0 type veth peer name thread1; ip link set thread0 up; ip link set thread1 up; ' +
        'ip addr add 10.96.0.1/24 dev thread0; ip addr add 10.96.0.2/24 dev thread1; ' +
        // Both addresses are local, and by default the kernel drops received packets with a local source address.
        'echo 1 > /proc/sys/net/ipv4/conf/thread1/accept_local',
    );
  });

  afterAll(() => {
    sh('ip link del thread0');
  });

  const ends = async (link: 'packet' | 'udp'): Promise<[End, End]> => {
    const open = async (end: string) =>
      endOn(await openDevice({ mode: 'worker', interface: end, link, memoryBytes: 2 ** 25 }));
    return [await open('thread0'), await open('thread1')];
  };

  test.each(['packet', 'udp'] as const)('%s carries connections, datagrams and groups', async (link) => {
    const [a, b] = await ends(link);
    await using _one = a.device;
    await using _other = b.device;
    await a.qp.connect(b.qp.endpoint(), { access: ALL });
    await b.qp.connect(a.qp.endpoint(), { access: ALL });
    pattern(60_000).copy(a.mr.buffer);
    const { iova: remoteAddr, rkey } = b.mr;
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 60_000), remoteAddr, rkey });
    throwIfFailed(await a.cq.next(WAIT));
    expect(b.mr.buffer.subarray(0, 60_000).equals(pattern(60_000))).toBe(true);

    const datagrams = async ({ pd, cq, mr }: End): Promise<Qp> => {
      const qp = await pd.createQp({ type: 'UD', sendCq: cq });
      await qp.activate({ qkey: 7 });
      qp.postRecv({ sgList: mr.sge(0, 200) });
      return qp;
    };
    const [from, to] = [await datagrams(a), await datagrams(b)];
    const send = async (address: string, remoteQpn: number, text: string) => {
      const ah = await a.pd.createAh({ grh: { dgid: address } });
      from.postSend({ opcode: 'SEND', sgList: Buffer.from(text), ah, remoteQpn, remoteQkey: 7 });
      throwIfFailed(await a.cq.next(WAIT));
    };
    const heard = async ({ cq, mr }: End) => mr.buffer.toString('latin1', 40, (await cq.next(WAIT)).byteLen);
    await send('10.96.0.2', to.qpNum, 'to one');
    expect(await heard(b)).toBe('to one');
    to.postRecv({ sgList: b.mr.sge(0, 200) });
    await to.attachMcast(GROUP);
    await send(GROUP, 0xffffff, 'to all');
    expect(await heard(b)).toBe('to all');
    await to.detachMcast(GROUP);
    await a.device.close({ force: true });
    await b.device.close({ force: true });
  });

  test('worker mode follows an interface that goes down, comes up and gets another address', async () => {
    const [a, b] = await ends('udp');
    await using _one = a.device;
    await using _other = b.device;
    const told = async (change: string): Promise<string> => {
      const event = once(a.device, 'event') as Promise<AsyncEvent[]>;
      sh(change);
      return (await event)[0]?.type as string;
    };
    expect(await told('ip link set thread0 down')).toBe('PORT_ERR');
    expect(await told('ip link set thread0 up')).toBe('PORT_ACTIVE');
    expect(await told('ip addr add 10.96.0.3/24 dev thread0')).toBe('GID_CHANGE');
    const address = a.device.gids.findIndex((gid) => gid.address === '10.96.0.3');
    expect(address).toBeGreaterThan(0);
    // The link has a new socket, which the thread has adopted.
    const gid = '::ffff:10.96.0.3';
    await a.qp.connect(b.qp.endpoint(gid), { sgidIndex: address });
    await b.qp.connect({ ...a.qp.endpoint(), gid }, { timeout: 17 });
    a.qp.postRecv({ sgList: a.mr.sge(0, 64) });
    b.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('to the new address') });
    throwIfFailed(await b.cq.next(WAIT));
    expect(a.mr.buffer.toString('latin1', 0, (await a.cq.next(WAIT)).byteLen)).toBe('to the new address');
  });
});
