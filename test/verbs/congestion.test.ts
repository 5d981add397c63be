// Congestion control through the API: parameters with units, and the effect of marks and CNPs between two devices.
import { afterEach, describe, expect, test } from 'vitest';
import { type Device, MemoryHub } from '../../src/index.js';
import { connectedPair, openOn, pattern } from './pair.js';

const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});
const opened = async (congestion?: Parameters<Device['congestion']['modify']>[0]) => {
  const device = await openOn(new MemoryHub(), congestion && { congestion });
  devices.push(device);
  return device;
};

const DEFAULTS = {
  ...{ enabled: true, ect: true, cnpInterval: 50, cnpDscp: 48, cnpPriority: 6, alphaInterval: 55 },
  ...{ cutInterval: 50, rateInterval: 75, byteStep: 1_000_000, fastRecovery: 5, gain: 1 / 256 },
  ...{ additiveRate: 20e6, hyperRate: 200e6, minRate: 1e9, lineRate: 10e9 },
};

test('congestion has the published parameters, and set changes only the given ones', async () => {
  const device = await opened({ ect: false, cnpInterval: 4 });
  expect(device.congestion.query()).toEqual({ ...DEFAULTS, ect: false, cnpInterval: 4 });
  device.congestion.modify({ lineRate: 25e9, gain: 0.5, enabled: false });
  expect(device.congestion.query()).toMatchObject({
    lineRate: 25e9,
    minRate: 2.5e9,
    gain: 0.5,
    enabled: false,
    cnpInterval: 4,
  });
  expect((await opened()).congestion.query()).toEqual(DEFAULTS);
});

test.each([
  [{ speed: 1 }, /congestion has no parameter speed, must be one of enabled, ect/],
  [{ enabled: 1 }, /congestion\.enabled is 1, must be true or false/],
  [{ cnpDscp: 64 }, /congestion\.cnpDscp.*64/],
  [{ cnpPriority: 8 }, /congestion\.cnpPriority is 8/],
  [{ gain: 0 }, /congestion\.gain is 0, must be/],
  [{ lineRate: Number.NaN }, /congestion\.lineRate is NaN/],
  [{ minRate: 11e9 }, /minRate is 11000000000, must be at most lineRate 10000000000/],
])('the parameters %j are refused, and nothing changes', async (wrong, message) => {
  const device = await opened();
  expect(() => device.congestion.modify({ byteStep: 7, ...wrong } as object)).toThrow(message);
  expect(device.congestion.query()).toEqual(DEFAULTS);
});

describe('with a network that marks every packet', () => {
  const marked = { fault: { rx: { ecn: 1 } } };
  const send = async (pair: Awaited<ReturnType<typeof connectedPair>>, count = 20) => {
    const { a, b } = pair;
    a.mr.buffer.set(pattern(65_536));
    for (let i = 0; i < count; i++)
      a.qp.postSend({
        opcode: 'RDMA_WRITE',
        sgList: a.mr.sge(0, 65_536),
        ...b.mr.remote,
        remoteAddr: b.mr.remote.addr,
      });
    for (let i = 0; i < count; i++) expect((await a.cq.next({ timeout: 10_000 })).ok).toBe(true);
    expect(b.mr.buffer.equals(a.mr.buffer)).toBe(true);
  };

  test('the receiver sends CNPs, and the sender reduces its rate', async () => {
    await using pair = await connectedPair({ open: { ...marked, congestion: { lineRate: 1e9, minRate: 50e6 } } });
    const start = performance.now();
    await send(pair);
    expect(pair.b.qp.counters()).toMatchObject({ np_cnp_sent: expect.any(Number) });
    expect(pair.b.qp.counters().np_ecn_marked_roce_packets).toBeGreaterThan(100);
    expect(pair.b.qp.counters().np_cnp_sent).toBeGreaterThan(1);
    expect(pair.a.qp.counters().rp_cnp_handled).toBeGreaterThan(1);
    // 10.5 Mbit at no more than 500 Mbit/s, the rate after the first CNP.
    expect(performance.now() - start).toBeGreaterThan(15);
  });

  test('query has the rate from the first CNP until it has recovered', async () => {
    const slow = { lineRate: 1e9, minRate: 50e6, rateInterval: 1e7, alphaInterval: 1e7 };
    await using pair = await connectedPair({ open: { ...marked, congestion: slow } });
    const { a } = pair;
    expect(a.qp.query().progress.rate).toBeUndefined();
    await send(pair);
    const { rate } = a.qp.query().progress;
    expect(rate).toBeGreaterThanOrEqual(50e6);
    expect(rate).toBeLessThanOrEqual(500e6);
  });

  test('a device without congestion control counts marks and does nothing else', async () => {
    await using pair = await connectedPair({ open: { ...marked, congestion: { enabled: false } } });
    await send(pair);
    expect(pair.b.qp.counters().np_ecn_marked_roce_packets).toBeGreaterThan(100);
    expect(pair.b.qp.counters().np_cnp_sent).toBe(0);
    expect(pair.a.qp.counters().rp_cnp_handled).toBe(0);
  });
});
