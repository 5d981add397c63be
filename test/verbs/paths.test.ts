// Paths that change while they are in use: the packets of queue pairs and address handles go the new way.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Device, MemoryHub, openDevice, throwIfFailed } from '../../src/index.js';
import type { Frames } from '../../src/link/frames.js';
import type { Resolved } from '../../src/link/link.js';
import { LinkWrapper } from '../../src/link/wrapper.js';
import { connect, createServer } from '../../src/net.js';
import { Recording } from '../kit/recording.js';
import { ALL, type End, endOn } from './pair.js';

const MACS = ['02:00:00:00:00:0a', '02:00:00:00:00:0b'].map((mac) => mac.replaceAll(':', ''));
const MEMORY_BYTES = 16 * 2 ** 20;
const VLAN = 5;

/** A link whose next hop has an address that a test sets. */
class MovingLink extends LinkWrapper {
  mac = MACS[0] as string;
  vlanTci: number | undefined;
  isReachable = true;
  lookups = 0;
  /** The kernel notifies. */
  notify = () => {};
  /** Frames that are kept for the end of the process. */
  readonly kept = new Set<Uint8Array>();

  attach(frames: Frames): void {
    this.attachInner(frames);
  }

  send(now: number): number {
    return this.inner.send(now);
  }

  receive(now: number): number {
    return this.inner.receive(now);
  }

  override async resolve(): Promise<Resolved> {
    this.lookups++;
    if (!this.isReachable) throw new Error('no answer');
    return { destMac: Buffer.from(this.mac, 'hex'), ...(this.vlanTci !== undefined && { vlanTci: this.vlanTci }) };
  }

  override get watchPaths() {
    return (onChange: () => void) => {
      this.notify = onChange;
    };
  }

  override keepLastFrame(frame: Uint8Array): () => void {
    const kept = frame.slice();
    this.kept.add(kept);
    return () => void this.kept.delete(kept);
  }
}

/** A device on a moving link, another one, and the frames that the first has sent. */
async function moving() {
  const hub = new MemoryHub();
  const recording = new Recording();
  let link: MovingLink | undefined;
  const wrapLink = (inner: ConstructorParameters<typeof MovingLink>[0]) => {
    link = new MovingLink(inner);
    return link;
  };
  const device = await openDevice({ hub, memoryBytes: MEMORY_BYTES, pcap: recording, wrapLink });
  const peer = await openDevice({ hub, memoryBytes: MEMORY_BYTES });
  const headers = () =>
    recording
      .capture()
      .packets.filter(({ direction }) => direction === 2)
      .map(({ data }) => Buffer.from(data).toString('hex', 0, 16));
  return {
    ...{ device, peer, link: link as unknown as MovingLink, headers },
    /** Destination MAC address of the last frame. */
    mac: () => headers().at(-1)?.slice(0, 12),
    async [Symbol.asyncDispose]() {
      for (const each of [device, peer]) await each.close({ force: true });
    },
  };
}

async function connected(device: Device, peer: Device, type: 'RC' | 'UC'): Promise<[End, End]> {
  const [a, b] = [await endOn(device, { type }), await endOn(peer, { type })];
  const retries = type === 'RC' ? { retryCnt: Number.POSITIVE_INFINITY } : {};
  await a.qp.connect(b.qp.endpoint(), { access: ALL, ...retries });
  await b.qp.connect(a.qp.endpoint(), { access: ALL });
  return [a, b];
}

async function send([a, b]: [End, End]): Promise<void> {
  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64) });
  throwIfFailed(await b.cq.next());
}

test.each(['RC', 'UC'] as const)('a connection goes to the new MAC address of its peer: %s', async (type) => {
  await using world = await moving();
  const { device, peer, link, mac } = world;
  const ends = await connected(device, peer, type);
  await send(ends);
  expect(mac()).toBe(MACS[0]);
  link.mac = MACS[1] as string;
  link.notify();
  await sleep(200);
  await send(ends);
  expect(mac()).toBe(MACS[1]);
  // a notification without a change changes nothing
  const { lookups } = link;
  link.notify();
  await sleep(200);
  expect(link.lookups).toBe(lookups + 1);
  await send(ends);
  expect(mac()).toBe(MACS[1]);
});

test('datagrams of an address handle go to the new MAC address, and its address tells it', async () => {
  await using world = await moving();
  const { device, peer, link, mac } = world;
  const [a, b] = [await endOn(device, { type: 'UD' }), await endOn(peer, { type: 'UD' })];
  for (const { qp } of [a, b]) await qp.activate({ qkey: 1 });
  const ah = await a.pd.createAh({ grh: { dgid: peer.chooseGid().gid } });
  const datagram = async () => {
    b.qp.postRecv({ sgList: b.mr.sge(0, 128) });
    const to = { ah, remoteQpn: b.qp.qpNum, remoteQkey: 1 };
    a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64), ...to });
    throwIfFailed(await b.cq.next());
  };
  await datagram();
  expect(mac()).toBe(MACS[0]);
  link.mac = MACS[1] as string;
  link.notify();
  await sleep(200);
  await datagram();
  expect([mac(), Buffer.from(ah.address.destMac).toString('hex')]).toEqual([MACS[1], MACS[1]]);
  ah[Symbol.dispose]();
  const { lookups } = link;
  link.notify();
  await sleep(200);
  expect(link.lookups).toBe(lookups);
});

test('a path that now leaves by a VLAN has its tag, with the priority of the service level', async () => {
  await using world = await moving();
  const { device, peer, link, headers } = world;
  const [a, b] = [await endOn(device), await endOn(peer)];
  await a.qp.connect(b.qp.endpoint(), { access: ALL, sl: 3 });
  await b.qp.connect(a.qp.endpoint(), { access: ALL });
  link.vlanTci = VLAN;
  link.notify();
  await sleep(200);
  a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64) });
  await sleep(10);
  expect(headers().at(-1)?.slice(24, 32)).toBe('81006005');
});

test('a path that cannot be resolved stays, and is looked up again while packets remain unacknowledged', async () => {
  await using world = await moving();
  const { device, peer, link, mac } = world;
  const ends = await connected(device, peer, 'RC');
  await send(ends);
  link.isReachable = false;
  link.notify();
  await sleep(200);
  await send(ends);
  expect(mac()).toBe(MACS[0]);
  const idle = link.lookups;
  await sleep(5000);
  expect(link.lookups).toBe(idle);
  // the neighbour is gone: the program hears of it, once
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => warnings.push(message);
  process.on('warning', onWarning);
  await peer.close({ force: true });
  ends[0].qp.postSend({ opcode: 'SEND', sgList: ends[0].mr.sge(0, 64) });
  await sleep(5000);
  process.off('warning', onWarning);
  expect(warnings).toEqual([expect.stringMatching(/^packets of device \S+ to \S+ remain unacknowledged: no answer$/)]);
  // it has moved, and nobody announces that
  link.isReachable = true;
  link.mac = MACS[1] as string;
  await sleep(3000);
  expect(mac()).toBe(MACS[1]);
});

test('the DREQ that is kept for the end of the process goes to the new MAC address', async () => {
  await using world = await moving();
  const { device, peer, link } = world;
  const server = createServer({ device: peer }).listen(7471);
  const socket = connect({ port: 7471, host: peer.chooseGid().gid.replace('::ffff:', ''), device } as never);
  await new Promise((resolve) => socket.once('connect', resolve));
  await sleep(200);
  const kept = () => [...link.kept].map((frame) => Buffer.from(frame).toString('hex', 0, 6));
  expect(kept()).toEqual([MACS[0]]);
  link.mac = MACS[1] as string;
  link.notify();
  await sleep(200);
  expect(kept()).toEqual([MACS[1]]);
  socket.destroy();
  server.close();
  await new Promise((resolve) => socket.once('close', resolve));
  expect(kept()).toEqual([]);
});
