// ICMP errors end requests in the core. The MAD agent learns of them by error sockets.

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, describe as group, onTestFinished, test } from 'vitest';
import { type CmId, createCmId } from '../../src/cm/index.js';
import type { IcmpErrorCode } from '../../src/errors.js';
import { type Device, type OpenOptions, openDevice } from '../../src/index.js';
import { faultLink } from '../../src/link/fault/link.js';
import { ETHERNET_BYTES } from '../../src/link/headers.js';
import type { ErrorSocket, IcmpError, Link } from '../../src/link/link.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { EventFaultLink } from '../../src/probe.js';
import { createMemoryHub } from '../../src/verbs/hub.js';
import { Rig } from '../link/rig.js';
import { Conversation, inState } from './conversation.js';
import { PORT } from './devicepair.js';
import * as mads from './mads.js';

function askService(): Conversation {
  const talk = new Conversation();
  const source = { address: mads.OUR_ADDRESS, port: 50000 };
  const destination = { address: mads.PEER_ADDRESS, port: 7174 };
  talk.id = talk.core.resolveService({ source, destination, privateData: Buffer.alloc(0) }, talk.now);
  return talk;
}

group('the core', () => {
  test.each([
    ['REQ', () => new Conversation().connect()],
    ['SIDR_REQ', askService],
    ['DREQ', () => inState('active DREQ_SENT')],
  ] as const)('every second repetition of a %s leaves by an error socket, from the first on', (_, begin) => {
    const talk = begin();
    const asked = talk.core.takeMessages().map(({ fails }) => fails);
    for (let i = 0; i < 5; i++) {
      talk.untilDeadline();
      asked.push(...talk.core.takeMessages().map(({ fails }) => fails));
    }
    const { id } = talk;
    expect(asked).toEqual([undefined, id, undefined, id, undefined, id].slice(-asked.length));
  });

  test('no repetition of a REP leaves by an error socket', () => {
    const talk = new Conversation().request().accept().discard();
    talk.untilDeadline();
    expect(talk.core.takeMessages().map(({ fails }) => fails)).toEqual([undefined]);
  });

  test.each<IcmpErrorCode>(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EACCES'])(
    '%s ends a connection attempt and the resolution of a service',
    (error) => {
      for (const talk of [new Conversation().connect(), askService()]) {
        talk.discard().core.fail(talk.id, error, talk.now);
        expect(talk.event('UNREACHABLE')).toMatchObject({ id: talk.id, status: 0, icmpError: error });
        expect([talk.core.size, talk.core.nextDeadline()]).toEqual([0, Number.POSITIVE_INFINITY]);
        talk.core.fail(talk.id, error, talk.now);
        expect(talk.events()).toEqual([]);
      }
    },
  );

  test('an attempt that an ICMP error ends sends a REJ, as the peer may have received the REQ', () => {
    const talk = new Conversation().connect().discard();
    talk.core.fail(talk.id, 'ECONNREFUSED', talk.now);
    expect(talk.sentOne('REJ')).toMatchObject({ reason: 4 });
  });

  test('an ICMP error for a DREQ ends the connection as a missing DREP does', () => {
    const talk = inState('active DREQ_SENT').discard();
    talk.core.fail(talk.id, 'ECONNREFUSED', talk.now);
    expect(talk.event('DISCONNECTED')).toMatchObject({ timedOut: true });
    expect(talk.state).toBe('TIMEWAIT');
  });

  test.each([
    'active REP_RCVD',
    'active ESTABLISHED',
    'active TIMEWAIT',
    'passive REP_SENT',
    'passive ESTABLISHED',
  ] as const)('an error that is late changes nothing: %s', (way) => {
    const talk = inState(way);
    talk.core.fail(talk.id, 'ECONNREFUSED', talk.now);
    expect([talk.events(), `${way.split(' ')[0]} ${talk.state}`]).toEqual([[], way]);
  });
});

/** The error sockets of a device, whose link has none of its own. */
class Sockets {
  readonly open = new Set<string>();
  opened = 0;
  /** That the kernel has taken. */
  readonly frames: Uint8Array[] = [];
  /** Whether the kernel takes their frames. */
  takes = true;
  onError: (error: IcmpError) => void = () => {};

  constructor({ link }: Device) {
    const openErrorSocket = (source: string, onError: (error: IcmpError) => void): ErrorSocket => {
      this.onError = onError;
      this.open.add(source);
      this.opened++;
      const send = (frame: Uint8Array) => {
        if (this.takes) this.frames.push(frame);
        return this.takes;
      };
      return { port: 50_000, send, close: () => this.open.delete(source) };
    };
    Object.assign(link, { openErrorSocket });
  }
}

const PEER = '10.0.0.2';

/** A device whose peer receives nothing. */
async function besideSilentPeer() {
  const hub = createMemoryHub();
  const open = async (address: string, options: OpenOptions = {}) => {
    const device = await openDevice({ link: 'memory', hub, addresses: [address], memoryBytes: 2 ** 24, ...options });
    onTestFinished(() => device.close({ force: true }));
    return device;
  };
  await open(PEER, { fault: { rx: { drop: 1 } } });
  const device = await open('10.0.0.1');
  return { device, sockets: new Sockets(device) };
}

/** Returns an id that has a route to the peer. */
async function resolved(device: Device, space: 'TCP' | 'UDP' = 'TCP'): Promise<CmId> {
  const id = createCmId(device, { space });
  await id.resolveAddr(PEER, PORT);
  await id.resolveRoute();
  if (space === 'TCP') await id.createQp(await device.allocPd(), { sendCq: await device.createCq() });
  return id;
}

group('the MAD agent', () => {
  test('an attempt fails with ECONNREFUSED when its peer answers "port unreachable"', async () => {
    const { device, sockets } = await besideSilentPeer();
    const id = await resolved(device);
    const text = 'refused the connection: no RoCE device has UDP port 4791 there (ICMP "port unreachable")';
    const failed = expect(id.connect()).rejects.toMatchObject({
      code: 'ECONNREFUSED',
      event: 'UNREACHABLE',
      message: `ECONNREFUSED: ${PEER} port ${PORT} ${text}`,
    });
    await sleep(300);
    expect([sockets.frames.length, [...sockets.open]]).toEqual([1, ['10.0.0.1']]);
    sockets.onError({ code: 'ECONNREFUSED', destination: PEER });
    await failed;
  });

  test.each([
    ['EHOSTUNREACH', 'no host has answered'],
    ['ENETUNREACH', 'a router has no route'],
    ['EACCES', 'a firewall forbids it'],
  ] as const)('%s is EHOSTUNREACH with its reason', async (code, reason) => {
    const { device, sockets } = await besideSilentPeer();
    const id = await resolved(device);
    const failed = expect(id.connect()).rejects.toMatchObject({
      code: 'EHOSTUNREACH',
      message: expect.stringContaining(reason),
    });
    await sleep(300);
    sockets.onError({ code, destination: PEER });
    await failed;
  });

  test('an ICMP error for another destination does not end an attempt', async () => {
    const { device, sockets } = await besideSilentPeer();
    const id = await resolved(device);
    const connecting = id.connect().catch((error) => error.code);
    await sleep(300);
    sockets.onError({ code: 'ECONNREFUSED', destination: '10.99.99.99' });
    // the third repetition asks again
    await sleep(2000);
    expect(sockets.frames.length).toBe(2);
    await id.close();
    expect(await connecting).toBe('ECANCELED');
  });

  test('attempts to one peer share an error socket and its error; the socket closes when it is unused for 5 s', async () => {
    const { device, sockets } = await besideSilentPeer();
    const ids = await Promise.all(Array.from({ length: 40 }, () => resolved(device, 'UDP')));
    const failures = ids.map((id) => id.connect().catch((error) => error.code));
    await sleep(300);
    expect([sockets.frames.length, sockets.opened]).toEqual([40, 1]);
    sockets.onError({ code: 'ECONNREFUSED', destination: PEER });
    expect(new Set(await Promise.all(failures))).toEqual(new Set(['ECONNREFUSED']));
    await sleep(11_000);
    expect(sockets.open.size).toBe(0);
  });

  test('a device that closes closes its socket', async () => {
    const { device, sockets } = await besideSilentPeer();
    const id = await resolved(device);
    const connecting = id.connect().catch((error) => error.code);
    await sleep(300);
    await device.close({ force: true });
    expect([sockets.opened, sockets.open.size]).toEqual([1, 0]);
    await connecting;
  });

  test('the ICRC of its frame covers the port of the socket: a card takes the frame', async () => {
    const { device, sockets } = await besideSilentPeer();
    const connecting = (await resolved(device)).connect().catch(() => {});
    await sleep(300);
    const hub = createMemoryHub();
    await using peer = await openDevice({ link: 'memory', hub, addresses: [PEER], memoryBytes: 2 ** 24 });
    const listener = createCmId(peer);
    await listener.bindAddr('::', PORT);
    await listener.listen();
    const [frame] = sockets.frames as [Uint8Array];
    expect(new DataView(frame.buffer, frame.byteOffset).getUint16(ETHERNET_BYTES + 20)).toBe(50_000);
    const rig = new Rig(memoryLink(hub, { addresses: ['10.0.0.1'] }));
    rig.put(frame);
    rig.link.send(0);
    expect((await listener.getRequest()).remoteAddress?.address).toBe('10.0.0.1');
    await device.close({ force: true });
    await connecting;
  });

  test('the card repeats a request whose frame the kernel refuses', async () => {
    const { device, sockets } = await besideSilentPeer();
    sockets.takes = false;
    const id = await resolved(device);
    const connecting = id.connect().catch((error) => error.code);
    await sleep(100);
    const { rdma_sends: before = 0 } = device.counters();
    await sleep(200);
    expect([sockets.frames.length, device.counters().rdma_sends]).toEqual([0, before + 1]);
    await id.close();
    await connecting;
  });
});

test('a link with faults has no such sockets: their frames would pass by the faults', () => {
  const inner: Link = memoryLink(createMemoryHub(), { addresses: ['10.0.0.1'] });
  inner.openErrorSocket = () => undefined;
  const links: Link[] = [faultLink(inner, {}), new EventFaultLink(inner, ['drop the 1st SEND_ONLY'])];
  expect(links.map((link) => link.openErrorSocket)).toEqual([undefined, undefined]);
});
