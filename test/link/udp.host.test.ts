import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { RX_IP_ID_UNKNOWN } from '../../src/link/frames.js';
import { listInterfaces } from '../../src/link/interfaces.js';
import { PacketLink } from '../../src/link/packet.js';
import { UdpLink } from '../../src/link/udp.js';
import { eventually } from '../kit/eventually.js';
import { describeIf, netPrivilege } from '../kit/privileges.js';
import { addToLoopback, removeFromLoopback } from './netns.js';
import { Rig, udpFrame } from './rig.js';

const ADDON = fileURLToPath(new URL(`../../prebuilds/linux-${process.arch}/wasm_roce.node`, import.meta.url));

test('interfaces and their addresses are read', () => {
  const lo = listInterfaces().find(({ isLoopback }) => isLoopback);
  expect(lo).toMatchObject({ name: 'lo', index: 1, mtu: 65536, isEthernet: true });
});

test('an open that fails says why', () => {
  expect(() => UdpLink.open({ interface: 'nosuch0' })).toThrow(
    /ENODEV: there is no interface 'nosuch0'; the interfaces are lo/,
  );
  expect(() => UdpLink.open({ addresses: ['203.0.113.9'] })).toThrow(/EADDRNOTAVAIL: no interface has.*203\.0\.113\.9/);
  expect(() => UdpLink.open({ interface: 'lo', addresses: ['203.0.113.9'] })).toThrow(
    /EADDRNOTAVAIL: lo does not have the address/,
  );
  expect(() => UdpLink.open({})).toThrow(TypeError);
  expect(() => PacketLink.open({ addresses: ['ten'] })).toThrow(TypeError);
});

test('a worker that ends in the middle of a wait does not disturb other threads', async () => {
  const source = `
    const { Poller } = require(${JSON.stringify(ADDON)});
    const waiter = new Poller(() => {});
    waiter.open([]);
    waiter.start(-1, true);
    const closed = new Poller(() => {});
    closed.open([]);
    closed.close();
    require('node:worker_threads').parentPort.postMessage('waiting');`;
  for (let i = 0; i < 10; i++) {
    const worker = new Worker(source, { eval: true });
    await new Promise((resolve) => worker.once('message', resolve));
    expect(await worker.terminate()).toBe(1);
  }
});

describeIf(netPrivilege(), 'over the loopback interface, udp', () => {
  const A = '10.92.0.1';
  const B = '10.92.0.2';
  const ADDRESSES = [`${A}/32`, `${B}/32`, 'fd00:92::1/128', 'fd00:92::2/128'];
  let a: Rig;
  let b: Rig;

  beforeAll(() => {
    addToLoopback(ADDRESSES);
    a = new Rig(UdpLink.open({ addresses: [A, 'fd00:92::1'] }));
    b = new Rig(UdpLink.open({ addresses: [B, 'fd00:92::2'] }));
  });

  afterAll(() => {
    a?.link.close();
    b?.link.close();
    removeFromLoopback(ADDRESSES);
  });

  const v4 = (fields = {}) => udpFrame({ source: A, destination: B, ...fields });
  const v6 = (fields = {}) =>
    udpFrame({ source: 'fd00:92:0:0:0:0:0:1', destination: 'fd00:92:0:0:0:0:0:2', ...fields });

  test('received frames have the sender’s headers, except for MACs, identification and source port', async () => {
    a.put(v4({ trafficClass: 0x6a, ttl: 3, id: 99 }), v6({ trafficClass: 0x6a, ttl: 3 }), v4());
    expect(a.link.send(0)).toBe(3);
    const arrived = await b.gather(3);
    const none = { destMac: [0, 0, 0, 0, 0, 0], srcMac: [0, 0, 0, 0, 0, 0], sourcePort: 4791 };
    expect(arrived.filter(({ options }) => options === RX_IP_ID_UNKNOWN).map(({ frame }) => frame)).toEqual([
      v4({ ...none, trafficClass: 0x6a, ttl: 3 }),
      v4(none),
    ]);
    expect(arrived.filter(({ options }) => options === 0).map(({ frame }) => frame)).toEqual([
      v6({ ...none, trafficClass: 0x6a, ttl: 3 }),
    ]);
  });

  test('frames have identification 0 and DF on the wire, on the loopback interface as well', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const tap = new Rig(PacketLink.open({ interface: 'lo', addresses: [A] }), { sources: [A] });
    a.put(v4({ id: 7 }), v4({ id: 8 }), v4({ id: 9 }));
    a.link.send(0);
    const seen = (await tap.gather(3)).map(({ frame }) => [frame.readUInt16BE(18), frame.readUInt16BE(20)]);
    expect(seen).toEqual(Array(3).fill([0, 0x4000]));
    expect(warn.mock.lastCall).toEqual([expect.stringContaining(A), { code: 'WASM_ROCE_PORT_TAKEN' }]);
    warn.mockRestore();
    expect((tap.link as PacketLink).notes).toEqual([`UDP port 4791 of ${A} is bound by another program or by rxe`]);
    tap.link.close();
    await b.gather(3);
  });

  test('a frame that is no datagram of ours is counted and skipped', async () => {
    const before = a.link.counters().tx_invalid as number;
    a.put(
      Buffer.alloc(10),
      Buffer.alloc(60, 0xff),
      v4({ source: '10.9.9.9' }),
      v4().subarray(0, 40),
      v4({ payload: Buffer.from('good') }),
    );
    expect(a.link.send(0)).toBe(5);
    expect(a.link.counters().tx_invalid).toBe(before + 4);
    expect((await b.gather(1)).map(({ frame }) => frame.subarray(42).toString())).toEqual(['good']);
  });

  test('hundreds of frames arrive in order', async () => {
    const got: number[] = [];
    for (let round = 0; round < 10; round++) {
      for (let i = 0; i < 60; i++) {
        const payload = Buffer.alloc(1000);
        payload.writeUInt32BE(round * 60 + i);
        a.put(v4({ payload }));
      }
      expect(a.link.send(0)).toBe(60);
      got.push(...(await b.gather(60)).map(({ frame }) => frame.readUInt32BE(42)));
    }
    expect(got).toEqual(Array.from({ length: 600 }, (_, i) => i));
  });

  test('a full receive ring leaves the rest in the socket', async () => {
    for (let i = 0; i < 60; i++) a.put(v4());
    a.link.send(0);
    for (let i = 0; i < 40; i++) a.put(v4());
    a.link.send(0);
    await eventually(() => {
      b.link.receive(0);
      expect(b.rx.filled).toBe(64);
    });
    expect(b.link.receive(0)).toBe(0);
    expect(b.take()).toHaveLength(64);
    expect(await b.gather(36)).toHaveLength(36);
  });

  test('a wait ends at its deadline to the fraction of a millisecond, and once only', async () => {
    let calls = 0;
    /** Waits for 0.4 ms. @returns the time that it took, in ms */
    const wait = async () => {
      const start = performance.now();
      await new Promise<void>((resolve) =>
        b.link.wait((start + 0.4) * 1e6, true, () => {
          calls++;
          resolve();
        }),
      );
      return performance.now() - start;
    };
    // A busy machine delays any one of them; a timer of whole milliseconds would delay them all.
    let [took, waits] = [await wait(), 1];
    for (; took >= 1 && waits < 1000; waits++) {
      expect(took).toBeGreaterThanOrEqual(0.4);
      took = await wait();
    }
    expect(took).toBeGreaterThanOrEqual(0.4);
    expect(took).toBeLessThan(1);
    a.put(v4());
    a.link.send(0);
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(calls).toBe(waits);
    await new Promise<void>((resolve) => b.link.wait(0, true, resolve));
    expect(await b.gather(1)).toHaveLength(1);
  });

  test('an exception of the callback is uncaught, and not lost', async () => {
    const listeners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    const caught = new Promise((resolve) => process.once('uncaughtException', resolve));
    b.link.wait((performance.now() + 0.1) * 1e6, true, () => {
      throw new Error('from the callback');
    });
    expect(String(await caught)).toContain('from the callback');
    for (const listener of listeners) process.on('uncaughtException', listener);
  });

  test('a second card on an address is refused', () => {
    expect(() => UdpLink.open({ addresses: [A] })).toThrow(/EADDRINUSE: UDP port 4791 of 10\.92\.0\.1 is taken/);
  });

  test('a destination needs a route; no neighbour is asked', async () => {
    expect((await a.link.resolve(B, A)).destMac).toEqual(new Uint8Array(6));
    await expect(a.link.resolve('203.0.113.1', A)).rejects.toThrow(/EHOSTUNREACH: there is no route/);
  });

  test('the receive slots that were used last are used again, and none is lost', async () => {
    const slots = () => Array.from({ length: 64 }, (_, n) => b.rx.addr(n)).sort((x, y) => x - y);
    while (b.link.receive(0) > 0) b.take();
    const before = slots();
    const used = new Set<number>();
    for (let n = 0; n < 100; n++) {
      const frames = Array.from({ length: 3 }, () => udpFrame({ source: A, destination: B }));
      a.put(...frames);
      a.link.send(0);
      await eventually(() => {
        b.link.receive(0);
        expect(b.rx.filled).toBe(frames.length);
      });
      for (const k of frames.keys()) used.add(b.rx.addr(b.rx.consumer + k));
      expect(b.take().map(({ frame }) => frame.subarray(42))).toEqual(frames.map((frame) => frame.subarray(42)));
    }
    expect(slots()).toEqual(before);
    expect(used.size).toBeLessThan(10);
  });
});
