// Discovery of a peer's services at the usual ports: over the memory link, and TCP over the loopback interface.
import { createServer, type Server } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type Candidate, discover, discoveryText } from '../../src/cli/probe/discovery.js';
import { candidatesOf } from '../../src/cli/probe/services.js';
import { LinkTarget, type PeerService } from '../../src/cli/probe/target.js';
import { createCmId, createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { ScriptedLink } from '../../src/probe.js';
import { freePort } from '../cli/run.js';
import { eventually } from '../kit/eventually.js';

const devices: Device[] = [];
const servers: Server[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
  for (const server of servers.splice(0)) server.close();
});

const PEER = '10.0.0.2';

async function open() {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: ['10.0.0.1'] }));
  const device = await openDevice({ link });
  const peer = await openDevice({ hub, addresses: [PEER] });
  devices.push(device, peer);
  return { link, device, peer };
}

async function found(device: Device, candidates: readonly Candidate[], host = PEER, timeoutMs = 5000) {
  const all: [string, string | undefined][] = [];
  for await (const { candidate, why } of discover(candidates, { device, host, timeoutMs }))
    all.push([candidate.name, why]);
  return all;
}

const cm = (name: string, port: number): Candidate => ({ name, over: 'rdma_cm', port });

test('a REQ finds a listener, and leaves no connection behind', async () => {
  const { device, peer } = await open();
  const accepted = await peer.listen({ port: 7174 });
  const events: string[] = [];
  const serving = (async () => {
    for await (const request of accepted) {
      const connection = await request.accept();
      // an orderly end is no error
      const message = await connection.receive();
      events.push(message === undefined ? 'ended' : 'a message');
    }
  })();
  // the first use of rdma_cm takes memory for its messages
  await found(device, [cm('nobody', 9999)]);
  const before = device.query().memoryAvailable;
  expect(await found(device, [cm('rping', 7174), cm('ucmatose', 7471)])).toEqual([
    ['rping', undefined],
    ['ucmatose', expect.stringMatching(/10\.0\.0\.2 port 7471 .*INVALID_SERVICE_ID/)],
  ]);
  await eventually(() => expect(events).toEqual(['ended']));
  expect(device.query().memoryAvailable).toBe(before);
  await accepted.close();
  await serving;
});

test('a service that refuses for a reason of its own is found', async () => {
  const { device, peer } = await open();
  const listener = createCmId(peer);
  await listener.bindAddr(PEER, 7471);
  await listener.listen();
  const refusing = listener.getRequest().then(async (id) => {
    await id.reject();
    await id.close();
  });
  expect(await found(device, [cm('ucmatose', 7471)])).toEqual([['ucmatose', undefined]]);
  await refusing;
});

test('a TCP connection that is closed at once finds no service', async () => {
  const { device } = await open();
  const [port, none] = [await freePort(), await freePort()];
  const server = createServer();
  servers.push(server);
  const closed = new Promise<number>((resolve) => {
    server.on('connection', (socket) => socket.resume().on('close', () => resolve(socket.bytesRead)));
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const tcp = (name: string, at: number): Candidate => ({ name, over: 'TCP', port: at });
  expect(await found(device, [tcp('write-bw', port), tcp('read-bw', none)], '127.0.0.1')).toEqual([
    ['write-bw', undefined],
    ['read-bw', expect.stringContaining('ECONNREFUSED')],
  ]);
  expect(await closed).toBe(0);
});

test('the wait for a peer without rdma_cm ends after its time', async () => {
  const { device } = await open();
  const [[name, why] = []] = await found(device, [cm('rping', 7174)], '10.0.0.99', 50);
  expect(name).toBe('rping');
  expect(why).toMatch(/10\.0\.0\.99|no answer/);
});

test('a port that was named is not tried', async () => {
  const { device } = await open();
  const told = candidatesOf(PEER, 1000, 64, { regions: 9000, perftest: [9001, 9002] });
  expect(told.filter(({ isTold }) => isTold).map(({ name, port }) => [name, port])).toEqual([
    ['regions', 9000],
    ['perftest', 9001],
    ['perftest', 9002],
  ]);
  expect(
    await found(
      device,
      told.filter(({ isTold }) => isTold),
    ),
  ).toEqual([]);
});

test('an absent service is not tried again, and its checks name what to start', async () => {
  const { link, device } = await open();
  const service: PeerService = {
    start: 'a server',
    hasReceives: true,
    choosesPsn: false,
    needsTrial: true,
    connect: () => expect.fail('tried'),
  };
  const target = new LinkTarget({ device, link, services: [service], absent: new Map([[service, 'refused']]) });
  expect(await target.responder({ receives: false })).toBe('start on the peer: a server');
  expect(target.missing).toEqual([]);
});

test('the command prints the services that it found', () => {
  const candidate = cm('rping', 7174);
  const service = { start: '', hasReceives: false, choosesPsn: false, connect: () => expect.fail() };
  expect(discoveryText({ candidate })).toBe('found: rping (rdma_cm port 7174); no check uses it');
  expect(discoveryText({ candidate: { ...candidate, service } })).toBe('found: rping (rdma_cm port 7174)');
  expect(discoveryText({ candidate, why: 'refused' })).toBe('not there: rping (rdma_cm port 7174): refused');
});
