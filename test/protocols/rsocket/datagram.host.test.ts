// Datagram sockets of wasm-roce/dgram: the same programs over node:dgram, and what only rsockets have.
import * as nodeDgram from 'node:dgram';
import { getEventListeners, once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import * as ourDgram from '../../../src/dgram.js';
import { createMemoryHub, type Device, openDevice } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../../kit/privileges.js';
import { sh } from '../../link/netns.js';
import { thrown } from '../thrown.js';

/** The introductions go by UDP, so the addresses must be those of the host. */
const [OWN, PEER] = ['127.0.0.1', '127.0.0.2'];
let [device, peer]: Device[] = [];

beforeEach(async () => {
  const hub = createMemoryHub();
  [device, peer] = await Promise.all([OWN, PEER].map((address) => openDevice({ hub, addresses: [address] })));
});
afterEach(async () => {
  for (const one of [device, peer]) await one?.close({ force: true });
});

type AnySocket = nodeDgram.Socket;
type Log = unknown[];

/** The module of a program: sockets of one of the two, at each of the addresses. */
interface World {
  socket(address: string, options?: object): AnySocket;
}

const udp: World = { socket: (_, options) => nodeDgram.createSocket({ type: 'udp4', ...options }) };
const rsockets: World = {
  socket: (address, options) =>
    ourDgram.createSocket({ type: 'udp4', device: address === OWN ? device : peer, ...options } as never) as never,
};

/** Opens a socket that the test closes, and logs its events. */
function open(world: World, address: string, log: Log = [], options?: object): AnySocket {
  const socket = world.socket(address, options);
  for (const event of ['listening', 'connect', 'close']) socket.on(event, () => log.push(event));
  socket.on('error', (error) => log.push(`error ${(error as NodeJS.ErrnoException).code}`));
  onTestFinished(async () => {
    try {
      socket.close();
    } catch {
      // it is closed
    }
  });
  return socket;
}

async function bound(world: World, address: string, log: Log = []): Promise<[socket: AnySocket, port: number]> {
  const socket = open(world, address, log);
  socket.bind(0, address);
  await once(socket, 'listening');
  return [socket, socket.address().port];
}

const received = async (socket: AnySocket) => {
  const [message, { address, family, size }] = (await once(socket, 'message')) as [Buffer, nodeDgram.RemoteInfo];
  return [`${message}`, address, family, size];
};
const PROGRAMS: Readonly<Record<string, (world: World) => Promise<Log>>> = {
  async 'messages there and back, in all forms of send'(world) {
    const log: Log = [];
    const [server, port] = await bound(world, PEER);
    server.on('message', (message, { port: to, address }) => server.send(`${message}!`, to, address));
    const [client] = await bound(world, OWN, log);
    const send = async (...args: unknown[]) => {
      const answer = received(client);
      await new Promise<void>((resolve, reject) => {
        const done = (error: Error | null | undefined) => (error ? reject(error) : resolve());
        (client.send as (...all: unknown[]) => void)(...args, done);
      });
      log.push(await answer);
    };
    await send('text', port, PEER);
    await send(Buffer.from('bytes'), port, PEER);
    await send(new Uint16Array([0x6161, 0x6262]), port, PEER);
    await send(['several ', Buffer.from('parts')], port, PEER);
    await send(Buffer.from('a part'), 2, 4, port, PEER);
    await send('', port, PEER);
    return log;
  },

  async 'a connected socket sends to its peer and hears nobody else'(world) {
    const log: Log = [];
    const [server, port] = await bound(world, PEER);
    const [other] = await bound(world, PEER);
    const [client, own] = await bound(world, OWN, log);
    client.connect(port, PEER);
    await once(client, 'connect');
    const { address, family } = client.remoteAddress();
    log.push(address, family, client.remoteAddress().port === port);
    client.on('message', (message) => log.push(`${message}`));
    const heard = received(server);
    client.send('to the peer');
    log.push(await heard);
    other.send('from another', own, OWN);
    server.send('from the peer', own, OWN);
    await eventually(() => expect(log).toContain('from the peer'));
    await sleep(50);
    log.push(
      thrown(() => client.send('x', port, PEER)),
      thrown(() => client.connect(port, PEER)),
    );
    client.disconnect();
    log.push(
      thrown(() => client.disconnect()),
      thrown(() => client.remoteAddress()),
    );
    return log;
  },

  async 'a socket that sends first is bound to a free port'(world) {
    const log: Log = [];
    const [server, port] = await bound(world, PEER);
    const client = open(world, OWN, log);
    const heard = once(server, 'message');
    client.send('hello', port, PEER);
    const [, rinfo] = (await heard) as [Buffer, nodeDgram.RemoteInfo];
    log.push(rinfo.port === client.address().port, client.address().port > 0);
    return log;
  },

  async 'the end: close before, while and after binding, twice'(world) {
    const log: Log = [];
    const never = open(world, OWN, log);
    never.close(() => log.push('closed'));
    await once(never, 'close');
    const early = open(world, OWN, log);
    early.bind(0, OWN);
    early.close();
    await once(early, 'close');
    const [late] = await bound(world, OWN, log);
    late.close();
    log.push(
      thrown(() => late.close()),
      thrown(() => late.send('x', 1, PEER)),
      thrown(() => late.address()),
    );
    await once(late, 'close');
    return log;
  },

  async 'wrong arguments'(world) {
    const [socket] = await bound(world, OWN);
    const send = socket.send.bind(socket) as (...all: unknown[]) => void;
    return [
      thrown(() => world.socket(OWN, { type: 'udp5' })),
      thrown(() => send(7, 1, PEER)),
      thrown(() => send('x')),
      thrown(() => send('x', 70_000, PEER)),
      thrown(() => send('x', 0, PEER)),
      thrown(() => send('x', 1, 7)),
      thrown(() => socket.bind()),
      thrown(() => socket.connect(0, PEER)),
      thrown(() => socket.disconnect()),
      thrown(() => socket.remoteAddress()),
    ];
  },

  async 'signals: aborted before, aborted while the socket is bound, and one for many sockets'(world) {
    const log: Log = [];
    const aborted = open(world, OWN, log, { signal: AbortSignal.abort() });
    log.push(thrown(() => aborted.bind(0, OWN)));
    await once(aborted, 'close');
    const controller = new AbortController();
    const socket = open(world, OWN, log, { signal: controller.signal });
    socket.bind(0, OWN);
    await once(socket, 'listening');
    controller.abort();
    await once(socket, 'close');
    const { signal } = new AbortController();
    for (let i = 0; i < 3; i++) {
      const short = open(world, OWN, log, { signal });
      short.close();
      await once(short, 'close');
      log.push(getEventListeners(signal, 'abort').length);
    }
    log.push(thrown(() => world.socket(OWN, { signal: 'now' })));
    return log;
  },

  async 'ports as texts'(world) {
    const log: Log = [];
    const [server, port] = await bound(world, PEER);
    const client = open(world, OWN, log);
    client.bind('0' as never, OWN);
    await once(client, 'listening');
    const heard = received(server);
    client.send('x', String(port) as never, PEER);
    log.push(await heard);
    client.connect(String(port) as never, PEER);
    await once(client, 'connect');
    log.push(client.remoteAddress().port === port, typeof client.remoteAddress().port);
    return log;
  },

  async 'a port that is taken'(world) {
    const log: Log = [];
    const [, port] = await bound(world, OWN);
    const second = open(world, OWN, log);
    second.bind(port, OWN);
    await once(second, 'error');
    return log;
  },
};

describe('a program has the same results over node:dgram', () => {
  test.each(Object.keys(PROGRAMS))('%s', async (name) => {
    const program = PROGRAMS[name] as (world: World) => Promise<Log>;
    expect(await program(rsockets)).toEqual(await program(udp));
  });
});

/** Packets that the device has sent. */
const sentPackets = (one: Device) => one.counters().sent_pkts ?? 0;

test('the first message leaves by UDP, the others by UD', async () => {
  const [server, port] = await bound(rsockets, PEER);
  const [client] = await bound(rsockets, OWN);
  const before = sentPackets(device as Device);
  const first = received(server);
  client.send('first', port, PEER);
  await first;
  expect(sentPackets(device as Device) - before).toBe(0);
  await eventually(async () => {
    const heard = received(server);
    client.send('further', port, PEER);
    await heard;
    expect(sentPackets(device as Device)).toBeGreaterThan(before);
  });
});

test('a peer that has restarted is found again, and its address is resolved again', async () => {
  const resolve = vi.spyOn((device as Device).link, 'resolve');
  const log: string[] = [];
  const [first, port] = await bound(rsockets, PEER);
  const [client] = await bound(rsockets, OWN);
  const until = async (server: AnySocket) => {
    let count = 0;
    server.on('message', () => count++);
    await eventually(() => {
      client.send('hello', port, PEER);
      expect(count).toBeGreaterThan(2);
    });
  };
  await until(first);
  // until then messages go by UDP, by which the second would be reached at once
  await eventually(() => expect(resolve.mock.settledResults.length).toBeGreaterThan(0));
  await new Promise<void>((resolve) => first.close(resolve));
  const second = open(rsockets, PEER, log);
  second.bind(port, PEER);
  await once(second, 'listening');
  const before = resolve.mock.calls.length;
  await until(second);
  expect(resolve.mock.calls.length).toBeGreaterThan(before);
});

describeIf(all(netPrivilege(), programPrivilege('ip')), 'link-local addresses', () => {
  test('a message names the interface, by UDP and by UD', async () => {
    const hub = createMemoryHub();
    const open = (address: string) => openDevice({ hub, addresses: [address] });
    await using client = await open('fe80::d1');
    await using host = await open('fe80::d2');
    const { interface: name } = host.queryPort();
    sh(`ip link add ${name} type veth peer name ${name}p; for i in ${name} ${name}p; do ip link set $i up; done`);
    onTestFinished(() => void sh(`ip link del ${name}`));
    for (const address of ['fe80::d1', 'fe80::d2']) sh(`ip addr add ${address}/64 dev ${name} nodad`);
    const senders: string[] = [];
    await using server = ourDgram.createSocket({ type: 'udp6', device: host });
    server.on('message', (_, { address }) => senders.push(address));
    server.bind(0, `fe80::d2%${name}`);
    await once(server, 'listening');
    await using socket = ourDgram.createSocket({ type: 'udp6', device: client });
    socket.bind(0, `fe80::d1%${name}`);
    await once(socket, 'listening');
    await eventually(() => {
      socket.send('hello', server.address().port, `fe80::d2%${name}`);
      expect(sentPackets(client)).toBeGreaterThan(0);
      expect(senders.length).toBeGreaterThan(2);
    });
    expect(new Set(senders)).toEqual(new Set([`fe80::d1%${name}`]));
  });
});

test('an option that is unknown or wrong is refused by its name', () => {
  const create = (options: object) => () => ourDgram.createSocket({ type: 'udp4', ...options } as never);
  expect(create({ adress: OWN })).toThrow("createSocket has no option 'adress', must be one of type, device,");
  expect(create({ receives: 0 })).toThrow('receives is 0, must be from 1 to 16384');
  expect(create({ lookup: 'dns' })).toThrow("lookup is 'dns', must be a function");
  expect(create({ reuseAddr: 1 })).toThrow('reuseAddr is 1, must be');
  expect(() => ourDgram.createSocket(undefined as never)).toThrow(
    'the options of createSocket are undefined, must be an object',
  );
});

test('each send calls its callback once, also when the socket is closed at once', async () => {
  const [server, port] = await bound(rsockets, PEER);
  server.on('message', () => {});
  let calls = 0;
  for (const isBound of [false, true]) {
    const client = isBound ? (await bound(rsockets, OWN))[0] : open(rsockets, OWN);
    for (let i = 0; i < 5; i++) client.send('x', port, PEER, () => calls++);
    if (isBound) await sleep(5);
    for (let i = 0; i < 5; i++) client.send('x', port, PEER, () => calls++);
    client.close();
    await once(client, 'close');
  }
  await sleep(5);
  expect(calls).toBe(20);
});

test('calls that wait for a bind get its error, and the socket can be bound again', async () => {
  const socket = open(rsockets, OWN);
  socket.bind(0, PEER);
  const sent = new Promise((resolve) => socket.send('hello', 7000, PEER, resolve));
  const connected = new Promise((resolve) => socket.connect(7000, PEER, resolve as () => void));
  expect(await sent).toMatchObject({ code: 'EADDRNOTAVAIL' });
  expect(await connected).toMatchObject({ code: 'EADDRNOTAVAIL' });
  socket.bind(0, OWN);
  await once(socket, 'listening');
  socket.connect(7000, PEER);
  await once(socket, 'connect');
});

test('a message of the largest size arrives by UDP and by UD, and a longer one is refused', async () => {
  const [server, port] = await bound(rsockets, PEER);
  const [client] = await bound(rsockets, OWN);
  const largest = Math.min((device as Device).queryPort().activeMtu - 8, 2048 - 16);
  const sizes: number[] = [];
  server.on('message', ({ length }) => sizes.push(length));
  await eventually(() => {
    client.send(Buffer.alloc(largest), port, PEER);
    expect(sizes.length).toBeGreaterThan(5);
  });
  expect(new Set(sizes)).toEqual(new Set([largest]));
  const error = new Promise((resolve) => client.send(Buffer.alloc(largest + 1), port, PEER, resolve));
  expect(await error).toMatchObject({ code: 'EMSGSIZE', message: expect.stringContaining(`at most ${largest}`) });
});

test('packets that are no introductions, and any number of peers, do not disturb the socket', async () => {
  const [server, port] = await bound(rsockets, PEER);
  const stranger = nodeDgram.createSocket('udp4').bind(0, OWN);
  onTestFinished(() => void stranger.close());
  await once(stranger, 'listening');
  let messages = 0;
  server.on('message', () => messages++);
  const good = Buffer.from('55555555 04 00 10 00 00000011 7f000001 6869'.replaceAll(' ', ''), 'hex');
  const bad = [Buffer.alloc(0), Buffer.from('hello'), good.subarray(0, 15), Buffer.concat([good, Buffer.alloc(2048)])];
  for (const bytes of bad) stranger.send(bytes, port, PEER);
  await sleep(100);
  expect(messages).toBe(0);
  stranger.send(good, port, PEER);
  await eventually(() => expect(messages).toBe(1));
});

/** Returns the UDP sockets that a call makes. */
async function udpSocketsOf(call: () => Promise<unknown>): Promise<nodeDgram.Socket[]> {
  const made: nodeDgram.Socket[] = [];
  const builtin = (nodeDgram as unknown as { default: typeof nodeDgram }).default;
  const { createSocket } = builtin;
  const spy = vi.spyOn(builtin, 'createSocket').mockImplementation((...args: unknown[]) => {
    const socket = (createSocket as (...all: unknown[]) => nodeDgram.Socket)(...args);
    made.push(socket);
    return socket;
  });
  syncBuiltinESMExports();
  await call();
  spy.mockRestore();
  syncBuiltinESMExports();
  return made;
}

test('an introduction from port 0, which takes no answer, is dropped', async () => {
  let opened: [AnySocket, number] | undefined;
  const [udp] = await udpSocketsOf(async () => {
    opened = await bound(rsockets, PEER);
  });
  const [server] = opened as [AnySocket, number];
  const messages: number[] = [];
  server.on('message', (_, { port }) => messages.push(port));
  const introduction = Buffer.from('55555555 04 00 10 00 00000011 7f000001 6869'.replaceAll(' ', ''), 'hex');
  // as the kernel hands it over: programs cannot send from port 0
  for (const port of [0, 4000])
    udp?.emit('message', introduction, { address: OWN, port, family: 'IPv4', size: introduction.length });
  await eventually(() => expect(messages).toEqual([4000]));
});
