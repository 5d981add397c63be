// The kernel's times of a script's packets, over a veth pair.
import { readdirSync, readlinkSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { macText } from '../../src/base/address.js';
import { type Device, openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { native } from '../../src/native.js';
import { ScriptedLink } from '../../src/probe/link/scriptedlink.js';
import { ack, flowOf, encodeFrame as frameOf } from '../../src/probe/packet/packets.js';
import { eventually } from '../kit/eventually.js';
import { describeIf, netPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from '../link/netns.js';
import '../link/ownsockets.js';

const devices: Device[] = [];
const now = () => performance.now() * 1e6;
const packetSockets = () =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith('socket:');
    } catch {
      return false;
    }
  }).length;

const closeAll = async (opened: Device[]) => {
  for (const device of opened.splice(0)) await device.close({ force: true });
};

describeIf(netPrivilege(), 'times of packets', () => {
  /** Devices whose taps are open during all tests. */
  const stamping: Device[] = [];

  beforeAll(async () => {
    vethPair(['kt0', 'kt1'], 77, 1500);
    vethPair(['kt2', 'kt3'], 78, 1500);
    // The kernel begins to stamp packets in a work item (net_enable_timestamp), some ms late while namespaces of other
    // tests come and go. It goes on as long as a tap is open.
    const { near, from, frame } = await open('kt2', 'kt3');
    stamping.push(...devices.splice(0));
    await eventually(() => {
      from.send(frame);
      expect(near.times.kernel).toBeGreaterThan(0);
    });
  });
  afterAll(async () => {
    await closeAll(stamping);
    sh('ip link del kt0; ip link del kt2');
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await closeAll(devices);
  });

  async function open(...names: string[]) {
    const [near, far] = (names.length > 0 ? names : ['kt0', 'kt1']).map(
      (name) => new ScriptedLink(PacketLink.open({ interface: name })),
    ) as [ScriptedLink, ScriptedLink];
    for (const link of [near, far]) devices.push(await openDevice({ link }));
    const frame = frameOf(
      flowOf({
        ...{ srcMac: macText(near.interface.mac), dstMac: macText(far.interface.mac) },
        ...{ srcIp: '10.77.0.1', dstIp: '10.77.0.2', srcQp: 500, destQp: 600 },
      }),
      ack({ psn: 7, msn: 1 }),
    );
    return { near, far, from: near.open(500), to: far.open(600), frame };
  }

  /** Keeps the process busy, so that no frame is read meanwhile. */
  function hold(ms: number): number {
    for (const end = performance.now() + ms; performance.now() < end; );
    return now();
  }

  test('are the kernel’s, and do not contain delays of the process', async () => {
    const { near, far, from, to, frame } = await open();
    const before = now();
    const sent = from.send(frame);
    const after = now();
    const held = hold(50);
    const arrival = await eventually(() => {
      const shifted = to.shift();
      expect(shifted).toBeDefined();
      return shifted as NonNullable<typeof shifted>;
    });
    const error = (near.times.error ?? Infinity) + (far.times.error ?? Infinity);
    expect(near.times).toMatchObject({ kernel: 1, process: 0 });
    expect(far.times.kernel).toBe(1);
    expect(sent).toBeGreaterThan(before - error);
    expect(sent).toBeLessThan(after + error);
    expect(arrival.at).toBeGreaterThanOrEqual(sent - error);
    expect(error).toBeLessThan(40e6);
    expect(arrival.at).toBeLessThan(held - 40e6);
  });

  test('are the process’s where no tap opens', async () => {
    vi.spyOn(native(), 'tapOpen').mockReturnValue(-1);
    const { near, from, frame } = await open();
    const before = now();
    expect(from.send(frame)).toBeGreaterThanOrEqual(before);
    expect(near.times).toEqual({ kernel: 0, process: 0, reason: 'a tap on the interface fails with EPERM' });
  });

  test('are the process’s while the wall clock is set', async () => {
    const { near, from, frame } = await open();
    const read = native().clockOffset;
    let step = 0n;
    vi.spyOn(native(), 'clockOffset').mockImplementation((result) => {
      read(result);
      result[0] = (result[0] as bigint) + step;
      step += 3_600_000_000_000n;
    });
    const before = now();
    const sent = from.send(frame);
    expect(sent).toBeGreaterThanOrEqual(before);
    expect(sent).toBeLessThan(now());
    expect(near.times).toMatchObject({ kernel: 0, process: 1 });
  });

  test('leave no socket behind', async () => {
    const count = packetSockets();
    await open();
    await closeAll(devices);
    expect(packetSockets()).toBe(count);
  });
});
