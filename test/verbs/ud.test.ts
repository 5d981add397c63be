// Unreliable datagrams between devices of one process: address handles, multicast groups, refused requests.
import { afterEach, describe, expect, test } from 'vitest';
import { type Device, GRH_BYTES, MemoryHub, MULTICAST_QPN, type Qp, readGrh } from '../../src/index.js';
import { type End, endOn, openOn } from './pair.js';

const WAIT = { timeout: 20_000 };
const QKEY = 0x1ee7;
const devices: Device[] = [];

afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function ends(count: number, qkey = QKEY): Promise<End[]> {
  const hub = new MemoryHub();
  const all: End[] = [];
  for (let i = 0; i < count; i++) {
    const device = await openOn(hub, { seed: i });
    devices.push(device);
    const end = await endOn(device, { type: 'UD' });
    await end.qp.activate({ qkey });
    all.push(end);
  }
  return all;
}
const addressOf = ({ device }: End, version: 4 | 6 = 4) =>
  `${version === 4 ? '10.0.0.' : 'fd00::'}${devices.indexOf(device) + 1}`;
const wayTo = (from: End, to: End, version: 4 | 6 = 4, more = {}) =>
  from.pd.createAh({ grh: { dgid: addressOf(to, version), ...more } });
const bytes = ({ mr }: End, from = 0, length = 4096) => mr.buffer.subarray(from, from + length);

describe.each<4 | 6>([4, 6])('over IPv%i', (version) => {
  test('the GRH and the completion of a datagram suffice to answer it', async () => {
    const [a, b] = (await ends(2)) as [End, End];
    b.qp.postRecv({ wrId: 1, sgList: b.mr.sge(0, 2048) });
    const ah = await wayTo(a, b, version, {
      trafficClass: 0x69,
      hopLimit: 9,
      ...(version === 6 && { flowLabel: 0x12345 }),
    });
    a.qp.postRecv({ wrId: 2, sgList: a.mr.sge(0, 2048) });
    a.qp.postSend({
      opcode: 'SEND_WITH_IMM',
      sgList: Buffer.from('hello'),
      immData: 5,
      ah,
      remoteQpn: b.qp.qpNum,
      remoteQkey: QKEY,
    });
    const wc = await b.cq.next(WAIT);
    expect(wc).toMatchObject({
      ok: true,
      byteLen: GRH_BYTES + 5,
      hasGrh: true,
      hasImm: true,
      immData: 5,
      srcQp: a.qp.qpNum,
    });
    expect(readGrh(bytes(b))).toEqual({
      version,
      source: addressOf(a, version),
      destination: addressOf(b, version),
      trafficClass: 0x69,
      flowLabel: version === 6 ? 0x12345 : 0,
      hopLimit: 9,
    });
    expect(b.mr.buffer.toString('latin1', GRH_BYTES, GRH_BYTES + 5)).toBe('hello');

    const attr = b.device.ahAttrFromWc(wc, bytes(b));
    expect(attr.grh).toMatchObject({
      dgid: version === 4 ? `::ffff:${addressOf(a)}` : addressOf(a, 6),
      trafficClass: 0x68,
    });
    expect(b.device.gids[attr.grh.sgidIndex as number]?.address).toBe(addressOf(b, version));
    const back = await b.pd.createAhFromWc(wc, bytes(b));
    b.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('back'), ah: back, remoteQpn: wc.srcQp, remoteQkey: QKEY });
    expect(await a.cq.next(WAIT)).toMatchObject({ opcodeName: 'SEND', ok: true });
    expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 2, byteLen: GRH_BYTES + 4, srcQp: b.qp.qpNum });
  });

  test('a datagram to a group reaches all members, the sender included, and no other', async () => {
    const all = (await ends(4)) as [End, End, End, End];
    const [a, b, c, d] = all;
    const group = version === 4 ? '239.200.1.2' : 'ff15::beef:1';
    for (const { qp, mr } of all) qp.postRecv({ sgList: mr.sge(0, 1024) });
    const second = await b.pd.createQp({ type: 'UD', sendCq: b.cq });
    await second.activate({ qkey: QKEY });
    second.postRecv({ sgList: b.mr.sge(1024, 1024) });
    for (const qp of [a.qp, b.qp, second, c.qp]) await qp.attachMcast(group);
    const ah = await d.pd.createAh({ grh: { dgid: group } });
    expect([...ah.address.destMac]).toEqual(version === 4 ? [1, 0, 0x5e, 0x48, 1, 2] : [0x33, 0x33, 0xbe, 0xef, 0, 1]);
    const send = (ah: Awaited<ReturnType<typeof wayTo>>, qp: Qp) =>
      qp.postSend({ opcode: 'SEND', sgList: Buffer.from('all'), ah, remoteQpn: MULTICAST_QPN, remoteQkey: QKEY });
    send(ah, d.qp);
    const heard = async ({ cq }: End) => (await cq.next(WAIT)).qpNum;
    expect(await heard(a)).toBe(a.qp.qpNum);
    expect(new Set([await heard(b), await heard(b)])).toEqual(new Set([b.qp.qpNum, second.qpNum]));
    const wc = await c.cq.next(WAIT);
    expect(readGrh(bytes(c)).destination).toBe(group);
    const attr = c.device.ahAttrFromWc(wc, bytes(c)).grh;
    expect(attr.dgid).toContain(addressOf(d, version));
    expect(await d.cq.next(WAIT)).toMatchObject({ opcodeName: 'SEND', ok: true });
    await expect(d.cq.next({ timeout: 20 })).rejects.toThrow('ETIMEDOUT');

    c.qp.postRecv({ sgList: c.mr.sge(0, 1024) });
    send(await c.pd.createAh({ grh: { dgid: group } }), c.qp);
    expect(new Set([(await c.cq.next(WAIT)).opcodeName, (await c.cq.next(WAIT)).opcodeName])).toEqual(
      new Set(['SEND', 'RECV']),
    );
  });
});

test('the completion of a datagram names the MAC address of its sender', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  b.qp.postRecv({ sgList: b.mr.sge(0, 2048) });
  a.qp.postSend({ opcode: 'SEND', ah: await wayTo(a, b), remoteQpn: b.qp.qpNum, remoteQkey: QKEY });
  const wc = await b.cq.next(WAIT);
  expect([wc.sourceMac, wc.vlanTci, wc.timeouts, wc.rnrs]).toEqual([a.device.link.interface.mac, undefined, 0, 0]);
  expect(wc.copy().sourceMac).toEqual(a.device.link.interface.mac);
  expect((await a.cq.next(WAIT)).sourceMac).toBeUndefined();
});

test('a datagram with a wrong Q_Key or without a receive is dropped and counted', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  const ah = await wayTo(a, b);
  const to = { ah, remoteQpn: b.qp.qpNum };
  a.qp.postSend([
    { opcode: 'SEND', ...to, remoteQkey: QKEY },
    { opcode: 'SEND', ...to, remoteQkey: 7 },
  ]);
  expect([(await a.cq.next(WAIT)).ok, (await a.cq.next(WAIT)).ok]).toEqual([true, true]);
  await expect(b.cq.next({ timeout: 20 })).rejects.toThrow('ETIMEDOUT');
  expect(b.qp.counters()).toMatchObject({ drop_no_receive: 1, drop_qkey: 1 });
});

test('a Q_Key with the high bit is replaced by that of the queue pair', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  b.qp.postRecv({ sgList: b.mr.sge(0, 100) });
  a.qp.postSend({ opcode: 'SEND', ah: await wayTo(a, b), remoteQpn: b.qp.qpNum, remoteQkey: 0x80000000 });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: GRH_BYTES });
});

test('postSend names the missing fields of a datagram', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  const ah = await wayTo(a, b);
  const to = { ah, remoteQpn: b.qp.qpNum, remoteQkey: QKEY };
  const { activeMtu } = a.device.queryPort();
  expect(ah.maxMessage).toBe(activeMtu);
  expect(() => a.qp.postSend({ opcode: 'SEND', ...to, sgList: a.mr.sge(0, activeMtu + 1) })).toThrow(
    `EMSGSIZE: SEND has ${activeMtu + 1} bytes, a datagram to ${addressOf(b)} must have at most ${activeMtu}`,
  );
  expect(() => a.qp.postSend({ opcode: 'SEND' })).toThrow(
    /ah is undefined, must be an address handle of pd\.createAh for SEND on qp/,
  );
  expect(() => a.qp.postSend({ opcode: 'SEND', ...to, remoteQpn: 2 ** 24 })).toThrow(
    /remoteQpn is 16777216, must have 24/,
  );
  expect(() => a.qp.postSend({ opcode: 'SEND', ah, remoteQpn: 1 })).toThrow(/remoteQkey is undefined/);
  const pd = await a.device.allocPd();
  const foreign = await pd.createAh(ah.address);
  expect(() => a.qp.postSend({ opcode: 'SEND', ...to, ah: foreign })).toThrow(/ah belongs to pd \d+, qp 0x\w+ to pd/);
  expect(() => a.qp.postSend({ opcode: 'RDMA_WRITE', remoteAddr: 0, rkey: 0, ...to } as never)).toThrow('EOPNOTSUPP');
  // BIND_MW and REG_MR are refused too: no peer could use their keys over UD.
  const [mr, mw] = [await a.pd.allocMr(), await a.pd.allocMw(1)];
  const keys = [mr.rkey, mw.rkey];
  const local = {
    REG_MR: { mr, buffer: a.mr },
    BIND_MW: { mw, mr: a.mr, access: [] },
    LOCAL_INV: { invalidateRkey: 1 },
  };
  for (const [opcode, wr] of Object.entries(local))
    expect(() => a.qp.postSend({ opcode, ...wr } as never)).toThrow(`EOPNOTSUPP: ${a.qp} does not support ${opcode}`);
  expect([mr.rkey, mw.rkey]).toEqual(keys);
  await ah.close();
  expect(() => a.qp.postSend({ opcode: 'SEND', ...to })).toThrow(/EINVAL: ah .* is closed/);
  await expect(a.qp.connect(b.qp.endpoint())).rejects.toThrow(/has type UD, which needs no connection/);
  await expect(pd.createAh({ grh: { dgid: '10.0.0.77' } })).rejects.toThrow('EHOSTUNREACH');
});

test('an address handle keeps its domain open, and may be used for a connection', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  const pd = await a.device.allocPd();
  const ah = await pd.createAh({ grh: { dgid: addressOf(b) } });
  await expect(pd.close()).rejects.toThrow(/EBUSY: pd \d+ has 1 ah \(10\.0\.0\.2\)/);
  const qp = await pd.createQp({ sendCq: a.cq, type: 'UC' });
  await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  await qp.modify({ state: 'RTR', ahAttr: ah, pathMtu: 1024, destQpNum: 5, rqPsn: 0 });
  expect(qp.query().ahAttr?.grh.dgid).toBe('::ffff:10.0.0.2');
  await qp.close();
  await ah.close();
  await pd.close();
});

test('readGrh refuses a buffer of fewer than 40 bytes, or with other contents', async () => {
  const [a, b] = (await ends(2)) as [End, End];
  b.qp.postRecv({ sgList: b.mr.sge(0, 100) });
  a.qp.postSend({ opcode: 'SEND', ah: await wayTo(a, b), remoteQpn: b.qp.qpNum, remoteQkey: QKEY });
  const wc = await b.cq.next(WAIT);
  const sent = await a.cq.next(WAIT);
  expect(() => b.device.ahAttrFromWc(wc, bytes(b, 0, 39))).toThrow(RangeError);
  expect(() => b.device.ahAttrFromWc(wc, Buffer.alloc(40))).toThrow(
    /EINVAL: the buffer does not begin with the IP header/,
  );
  expect(() => a.device.ahAttrFromWc(sent, bytes(b))).toThrow(/EINVAL: .*not the completion of a received datagram/);
  expect(() => a.device.ahAttrFromWc(wc, bytes(b))).toThrow(
    /EINVAL: the datagram was sent to 10\.0\.0\.2, which is no address/,
  );
});

describe('groups', () => {
  test('attachMulticast and detachMulticast refuse wrong arguments', async () => {
    const [a] = (await ends(1)) as [End];
    await expect(a.qp.attachMcast('10.0.0.1')).rejects.toThrow(/10\.0\.0\.1 is no multicast group, must be/);
    await expect(a.qp.attachMcast('here')).rejects.toThrow(TypeError);
    await a.qp.attachMcast('::ffff:239.1.2.3');
    await expect(a.qp.attachMcast('239.1.2.3')).rejects.toThrow(/EINVAL: qp .* is a member of 239\.1\.2\.3 already/);
    await a.qp.detachMcast('239.1.2.3');
    await expect(a.qp.detachMcast('239.1.2.3')).rejects.toThrow(/ENOENT: qp .* is no member of 239\.1\.2\.3/);
    const connected = await a.pd.createQp({ sendCq: a.cq });
    await expect(connected.attachMcast('239.1.2.3')).rejects.toThrow('EINVAL');
  });

  test('the link leaves a group with the last member of the device', async () => {
    const [a] = (await ends(1)) as [End];
    const log: string[] = [];
    const { link } = a.device;
    link.joinGroup = (group) => log.push(`+${group}`);
    link.leaveGroup = (group) => log.push(`-${group}`);
    const second = await a.pd.createQp({ type: 'UD', sendCq: a.cq });
    await a.qp.attachMcast('ff15::1');
    await second.attachMcast('ff15::1');
    await second.attachMcast('239.0.0.1');
    await a.qp.detachMcast('ff15::1');
    expect(log).toEqual(['+ff15::1', '+239.0.0.1']);
    await second.close();
    expect(log.slice(2).sort()).toEqual(['-239.0.0.1', '-ff15::1']);
  });

  test('a failed join of the link leaves no member', async () => {
    const [a] = (await ends(1)) as [End];
    Object.defineProperty(a.device.link, 'joinGroup', { value: undefined, configurable: true });
    await expect(a.qp.attachMcast('239.0.0.1')).rejects.toThrow(/EOPNOTSUPP: the memory link has no multicast/);
    await expect(a.qp.detachMcast('239.0.0.1')).rejects.toThrow('ENOENT');
  });
});
