// modify follows the table of transitions, and its error names every attribute at fault.
import { expect, test } from 'vitest';
import { createMemoryHub, type QpAttributes } from '../../src/index.js';
import { maxPathMtu } from '../../src/verbs/address/resolvedaddress.js';
import { udpSourcePort } from '../../src/verbs/address/sourceport.js';
import { connectedPair, endOn, openOn } from './pair.js';

async function twoEnds() {
  const hub = createMemoryHub();
  const a = await endOn(await openOn(hub));
  const b = await endOn(await openOn(hub));
  return { a, b };
}

const INIT: QpAttributes = { state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: ['remoteWrite'] };

test('modify takes a queue pair from RESET to RTS as ibv_modify_qp does', async () => {
  const { a, b } = await twoEnds();
  const { qp } = a;
  expect(qp.state).toBe('RESET');
  await qp.modify(INIT);
  expect(qp.state).toBe('INIT');
  await qp.modify({
    state: 'RTR',
    pathMtu: 1024,
    destQpNum: b.qp.qpNum,
    rqPsn: 0x123456,
    maxDestRdAtomic: 4,
    minRnrTimer: 12,
    ahAttr: {
      grh: { dgid: b.device.chooseGid().gid, sgidIndex: 1, hopLimit: 9, trafficClass: 0x68, flowLabel: 77 },
      sl: 5,
    },
  });
  await qp.modify({ state: 'RTS', sqPsn: 0xabcdef, timeout: 14, retryCnt: 6, rnrRetry: 5, maxRdAtomic: 3 });
  expect(qp.query()).toMatchObject({
    qpNum: qp.qpNum,
    type: 'RC',
    state: 'RTS',
    qpAccessFlags: ['remoteWrite'],
    pathMtu: 1024,
    destQpNum: b.qp.qpNum,
    rqPsn: 0x123456,
    sqPsn: 0xabcdef,
    timeout: 14,
    retryCnt: 6,
    rnrRetry: 5,
    maxRdAtomic: 3,
    maxDestRdAtomic: 4,
    minRnrTimer: 12,
    ahAttr: { grh: { dgid: '::ffff:10.0.0.2', sgidIndex: 1, hopLimit: 9, trafficClass: 0x68, flowLabel: 77 }, sl: 5 },
    progress: { sendPending: 0, nextPsn: 0xabcdef, expectedPsn: 0x123456 },
  });
  await qp.modify({ state: 'ERR' });
  expect(qp.state).toBe('ERR');
  await qp.modify({ state: 'RESET' });
  expect(qp.query()).toMatchObject({ state: 'RESET', ahAttr: undefined });
});

test('modify names missing, forbidden and invalid attributes with the transition', async () => {
  const { a } = await twoEnds();
  const { qp } = a;
  await expect(qp.modify({ state: 'INIT', pkeyIndex: 0 })).rejects.toThrow(
    `EINVAL: qp ${qp.label} RESET -> INIT: missing: qpAccessFlags, portNum`,
  );
  await expect(qp.modify({ ...INIT, timeout: 14, sqPsn: 1 })).rejects.toThrow(
    /RESET -> INIT: not allowed: timeout, sqPsn$/,
  );
  await expect(qp.modify({ ...INIT, pkeyIndex: 5, portNum: 2 })).rejects.toThrow(
    /RESET -> INIT: out of range: pkeyIndex 5 \(an index of the P_Key table\), portNum 2 \(1\)$/,
  );
  await expect(qp.modify({ state: 'RTS' })).rejects.toThrow(
    /^EINVAL: qp .* RESET -> RTS: not allowed: this transition/,
  );
  expect(qp.state).toBe('RESET');
  await qp.modify(INIT);
  const rtr: QpAttributes = {
    state: 'RTR',
    ahAttr: { grh: { dgid: '10.0.0.2' } },
    pathMtu: 1000,
    destQpNum: 5,
    rqPsn: 2 ** 24,
    maxDestRdAtomic: 129,
    minRnrTimer: 32,
  };
  await expect(qp.modify(rtr)).rejects.toThrow(/INIT -> RTR: out of range: .*pathMtu 1000 \(256, 512, 1024, 2048 or/);
  await expect(qp.modify(rtr)).rejects.toThrow(/rqPsn 16777216 \(24 bits\).*minRnrTimer 32 \(0 to 31\)/);
  await expect(qp.modify({ state: 'RTR', destQpNum: 5, timeout: 1 })).rejects.toThrow(
    /missing: ahAttr, pathMtu, rqPsn, minRnrTimer, maxDestRdAtomic; not allowed: timeout/,
  );
  expect(qp.state).toBe('INIT');
});

test('modify throws TypeErrors for values of wrong types', async () => {
  const { a } = await twoEnds();
  const refused = (attributes: object) => expect(a.qp.modify(attributes)).rejects;
  await refused({ state: 'READY' }).toThrow("state is 'READY', must be one of RESET, INIT, RTR, RTS, SQD, SQE, ERR");
  await refused({ path_mtu: 1024 }).toThrow(/'path_mtu' is no attribute of a queue pair, must be one of state, /);
  await refused({ ...INIT, portNum: '1' }).toThrow("portNum is '1', must be an integer");
  await refused({ ...INIT, portNum: -1 }).toThrow(RangeError);
  await refused({ ...INIT, qpAccessFlags: ['write'] }).toThrow(/qpAccessFlags has 'write', must be one of localWrite/);
  await refused({ state: 'RTR', ahAttr: {} }).toThrow(/ahAttr.grh.dgid is undefined/);
  await refused({ state: 'RTR', ahAttr: { grh: { dgid: '10.0.0.2', hopLimit: 0 } } }).toThrow(/hopLimit is 0/);
  await refused({ state: 'RTR', ahAttr: { grh: { dgid: '10.0.0.2' }, sl: 8 } }).toThrow(/ahAttr.sl is 8, must be/);
  await refused({ state: 'RTR', ahAttr: { grh: { dgid: '10.0.0.2', sgidIndex: 9 } } }).toThrow(/sgidIndex is 9/);
});

test('modify refuses a path MTU that the port cannot carry', async () => {
  const hub = createMemoryHub();
  const { memoryLink } = await import('../../src/link/memory/link.js');
  await using device = await openOn(hub, { link: memoryLink(hub, { addresses: ['10.1.0.1'], mtu: 1500 }) });
  const { qp } = await endOn(device);
  expect(device.queryPort()).toMatchObject({ activeMtu: 1024, interfaceMtu: 1500 });
  await qp.modify(INIT);
  await expect(qp.modify({ state: 'RTR', pathMtu: 2048 })).rejects.toThrow(
    "pathMtu is 2048, must be at most the port's active MTU 1024 (interface MTU 1500)",
  );
});

test('modify refuses an unreachable peer, or one of another family, and changes nothing', async () => {
  const { a } = await twoEnds();
  await a.qp.modify(INIT);
  const towards = (grh: { dgid: string; sgidIndex?: number }) =>
    a.qp.modify({
      state: 'RTR',
      ahAttr: { grh },
      pathMtu: 256,
      destQpNum: 5,
      rqPsn: 0,
      maxDestRdAtomic: 1,
      minRnrTimer: 1,
    });
  await expect(towards({ dgid: '10.0.0.77' })).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
  await expect(towards({ dgid: 'fd00::2', sgidIndex: 1 })).rejects.toThrow(/one is IPv4, the other IPv6/);
  await expect(towards({ dgid: 'nowhere' })).rejects.toThrow(TypeError);
  expect(a.qp.state).toBe('INIT');
});

test('calls of modify take effect in their order', async () => {
  const { a, b } = await twoEnds();
  const steps = [
    a.qp.modify(INIT),
    a.qp.modify({
      state: 'RTR',
      ahAttr: { grh: { dgid: '10.0.0.2' } },
      pathMtu: 256,
      destQpNum: b.qp.qpNum,
      rqPsn: 0,
      maxDestRdAtomic: 1,
      minRnrTimer: 1,
    }),
    a.qp.modify({ state: 'RTS', sqPsn: 1, timeout: 0, retryCnt: 0, rnrRetry: 0, maxRdAtomic: 0 }),
  ];
  await Promise.all(steps);
  expect(a.qp.state).toBe('RTS');
});

test('connect starts from RESET, takes the smaller MTU, and gives the peer no rights by default', async () => {
  await using pair = await connectedPair({ connect: { access: [] } });
  const { a, b } = pair;
  expect(a.qp.query()).toMatchObject({ state: 'RTS', pathMtu: 4096, qpAccessFlags: [], timeout: 14, rnrRetry: 7 });
  await expect(a.qp.connect(b.qp.endpoint())).rejects.toThrow(/is in state RTS, connect starts from RESET/);
  await a.qp.modify({ state: 'RESET' });
  await expect(a.qp.connect(b.qp.endpoint(), { retryCnt: 8 })).rejects.toThrow(
    /out of range: retryCnt 8 \(0 to 7, or Infinity\)/,
  );
  expect(a.qp.state).toBe('RESET');
  const endpoint = b.qp.endpoint();
  await expect(a.qp.connect({ ...endpoint, qpNum: 0 })).rejects.toThrow(
    'remote.qpNum is 0, must be from 1 to 16777215',
  );
  await expect(a.qp.connect({ ...endpoint, psn: -1 })).rejects.toThrow('remote.psn is -1, must be from 0 to 16777215');
  await a.qp.connect({ ...b.qp.endpoint(), mtu: 512 });
  expect(a.qp.query().pathMtu).toBe(512);
  expect(JSON.parse(JSON.stringify(b.qp.endpoint()))).toEqual(b.qp.endpoint());
});

test('a queue pair has another first PSN after RESET', async () => {
  await using pair = await connectedPair();
  const { psn } = pair.a.qp.endpoint();
  expect(pair.a.qp.query().sqPsn).toBe(psn);
  await pair.a.qp.modify({ state: 'RESET' });
  expect(pair.a.qp.endpoint().psn).not.toBe(psn);
});

test('the UDP source port of a queue pair is constant and in the dynamic range', () => {
  expect(udpSourcePort(0, 0x11, 0x12)).toBe(udpSourcePort(0, 0x12, 0x11));
  expect(udpSourcePort(1, 5, 6)).toBe(0xc001);
  expect(udpSourcePort(0xfffff, 5, 6)).toBe(0xc000 | (0x3fff ^ 0x3f));
  expect(udpSourcePort(0, 0x1a2b3c, 0x4d5e6f)).toBe(0xcdae); // worked out apart, with Python
});

test('the path MTU is the largest that fits into the IP MTU', () => {
  expect([335, 336, 1103, 1104, 1500, 4175, 4176, 9000, 65536].map(maxPathMtu)).toEqual([
    0, 256, 512, 1024, 1024, 2048, 4096, 4096, 4096,
  ]);
});

test('the service level is the priority of the VLAN tag', async () => {
  const { a, b } = await twoEnds();
  const attr = { grh: { dgid: b.device.chooseGid().gid }, sl: 6 };
  expect(await a.device.resolveAddress(attr)).toMatchObject({ sl: 6, vlanTci: undefined });
  const { link } = a.device;
  const resolve = link.resolve.bind(link);
  link.resolve = async (...route) => ({ ...(await resolve(...route)), vlanTci: 5 });
  expect(await a.device.resolveAddress(attr)).toMatchObject({ sl: 6, vlanTci: (6 << 13) | 5 });
  expect(await a.device.resolveAddress({ grh: attr.grh })).toMatchObject({ sl: 0, vlanTci: 5 });
});
