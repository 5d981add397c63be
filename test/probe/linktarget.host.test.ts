// Checks of an endpoint's services over the memory link.
import { Writable } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { RdmaService } from '../../src/cli/endpoint/listener.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { regionsHandler } from '../../src/cli/endpoint/messages.js';
import { PerftestService } from '../../src/cli/endpoint/perftest.js';
import { openRegion } from '../../src/cli/endpoint/regions.js';
import type { RegionConfig } from '../../src/cli/endpoint/schema.js';
import type { Service } from '../../src/cli/endpoint/service.js';
import { trafficHandler } from '../../src/cli/endpoint/traffic.js';
import { rpingService, trafficService } from '../../src/cli/probe/requesters.js';
import { perftestService, regionsService } from '../../src/cli/probe/services.js';
import { LinkTarget, type RequesterService, type ScriptedEnd } from '../../src/cli/probe/target.js';
import { connectionOptions, MAX_PING_BYTES } from '../../src/cli/rping/protocol.js';
import { answerPings } from '../../src/cli/rping/server.js';
import { type Connection, createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { decode } from '../../src/probe/packet/decode.js';
import { describe } from '../../src/probe/packet/describe.js';
import { Op } from '../../src/probe/packet/opcodes.js';
import { CHECKS, type Check, type Requester, runChecks, ScriptedLink } from '../../src/probe.js';
import { freePort } from '../cli/run.js';
import { JUDGED_BY_TIME } from './judgedbytime.js';

const devices: Device[] = [];
const services: Service[] = [];
afterEach(async () => {
  for (const service of services.splice(0)) await service.close();
  for (const device of devices.splice(0)) await device.close({ force: true });
});

const PEER = '10.0.0.2';
const silent = new Log('text', new Writable({ write: (_chunk, _encoding, done) => done() }));

async function open(rate?: number) {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: ['10.0.0.1'] }), rate === undefined ? {} : { rate });
  const device = await openDevice({ link });
  const peer = await openDevice({ hub, addresses: [PEER] });
  devices.push(device, peer);
  return { link, device, peer };
}

async function serveRegions(peer: Device) {
  const pd = await peer.allocPd();
  const all: RegionConfig = { size: 65536, access: ['remoteRead', 'remoteWrite', 'remoteAtomic'], persist: false };
  const regions = [
    await openRegion(pd, 'all', all),
    await openRegion(pd, 'sealed', { ...all, access: ['remoteRead'] }),
  ];
  const handler = regionsHandler(pd, () => regions.map(({ info }) => info));
  services.push(await RdmaService.open(peer, { port: 7472 }, handler, silent));
  return regionsService({ host: PEER, port: 7472, timeoutMs: 5000 });
}

/** The handshake runs over the loopback interface; the keys name the address on the memory link. */
async function servePerftest(peer: Device) {
  const port = await freePort();
  services.push(await PerftestService.open(peer, { type: 'write-bw', port, qps: 1 }, '127.0.0.1', silent));
  return perftestService({ host: '127.0.0.1', port, timeoutMs: 5000 });
}

async function serveTraffic(peer: Device) {
  services.push(await RdmaService.open(peer, { port: 7473 }, trafficHandler(), silent));
  return trafficService({ host: PEER, port: 7473, timeoutMs: 5000 });
}

/** Checks of a peer that answers requests, and of one that sends them. */
const ANSWERING = CHECKS.filter((check) => 'needs' in check);
const ASKING = CHECKS.filter((check) => 'asks' in check);

/** Runs checks, and returns what does not pass, with its packets, but for verdicts that a busy host can change. */
async function failures(target: LinkTarget, checks: readonly Check[]): Promise<string[]> {
  const others: string[] = [];
  for await (const { name, verdict, text, evidence } of runChecks(checks, target, { isIntrusive: true })) {
    if (verdict === 'pass' || JUDGED_BY_TIME.has(name)) continue;
    const packets = evidence.map(({ direction, frame }) => `  ${direction} ${describe(frame)}`);
    others.push([`${name}: ${verdict}: ${text}`, ...packets].join('\n'));
  }
  expect(target.missing).toEqual([]);
  return others;
}

test('a server of rping sends the requests of a check', async () => {
  const { link, device, peer } = await open();
  const handler = {
    accept: connectionOptions(MAX_PING_BYTES),
    serve: (connection: Connection) => answerPings(connection),
  };
  services.push(await RdmaService.open(peer, { port: 7174 }, handler, silent));
  const rping = rpingService({ host: PEER, port: 7174, timeoutMs: 5000 }, MAX_PING_BYTES);
  const target = new LinkTarget({ device, link, services: [], requesters: [rping] });
  expect(await failures(target, ASKING)).toEqual([
    'ack-of-several: not applicable: it sends one message at a time',
    'no-credits: not applicable: it sends one message at a time',
  ]);
}, 60_000);

test('the service traffic sends the requests of a check', async () => {
  const { link, device, peer } = await open();
  const target = new LinkTarget({ device, link, services: [], requesters: [await serveTraffic(peer)] });
  expect(await failures(target, ASKING)).toEqual([]);
}, 60_000);

test.each([[10_000], [100]])(
  'an endpoint passes every check, %d packets per second',
  async (rate) => {
    const { link, device, peer } = await open(rate);
    const found = [await serveRegions(peer), await servePerftest(peer)];
    const target = new LinkTarget({ device, link, services: found });
    // the figures of number 56 take thousands of packets
    const checks = rate === 100 ? ANSWERING.filter(({ number }) => number !== 56) : ANSWERING;
    // as a text, which a report shows whole
    expect((await failures(target, checks)).join('; ')).toBe('');
  },
  60_000,
);

test('without a service its checks are not reachable, and name what to start', async () => {
  const { link, device, peer } = await open();
  const there = await serveRegions(peer);
  const away = perftestService({ host: '127.0.0.1', port: await freePort(), timeoutMs: 1000 });
  const target = new LinkTarget({ device, link, services: [there, away] });
  const texts: string[] = [];
  for await (const { name, verdict, text } of runChecks(ANSWERING, target))
    if (verdict === 'not reachable') texts.push(`${name}: ${text}`);
  expect(texts).toEqual(
    ['rnr-nak', 'rnr-drops-the-rest'].map((name) =>
      expect.stringContaining(`${name}: start on the peer: ${away.start}`),
    ),
  );
  expect(target.missing).toEqual([[away.start, expect.stringContaining('ECONNREFUSED')]]);
}, 60_000);

test('a trial finds what a server permits, and checks that need no more run', async () => {
  const { link, device, peer } = await open();
  const there = await serveRegions(peer);
  // memory that permits READ alone stands for a stock server, whose queue pairs permit one operation
  const connect = async (end: ScriptedEnd) => {
    const { readOnly, ...served } = await there.connect(end);
    return { ...served, ...(readOnly && { region: readOnly }) };
  };
  const target = new LinkTarget({
    device,
    link,
    services: [{ ...there, needsTrial: true, choosesPsn: false, connect }],
  });
  expect(await target.responder({ receives: false, permits: ['READ'] })).toMatchObject({ permits: ['READ'] });
  await target.release();
  expect(await target.responder({ receives: false, permits: ['WRITE'] })).toMatch(/^start on the peer: .*ib_write_bw/);
  expect(target.missing).toEqual([]);
});

/** Queue pairs of `peer` that send 8 bytes on demand. */
async function sends(peer: Device): Promise<RequesterService> {
  const [pd, cq] = [await peer.allocPd(), await peer.createCq()];
  const mr = await pd.regMr(4096);
  const region = { va: 0x1000n, rkey: 7, length: 65536 };
  return {
    start: 'a sender',
    offers: ['SEND'],
    async connect({ device, qpNum: qpn, port }) {
      const qp = await pd.createQp({ sendCq: cq });
      await qp.connect({ gid: device.chooseGid(PEER).gid, qpNum: qpn, psn: 100 });
      const inner = await port({ address: PEER, qpNum: qp.qpNum, mtu: 1024 });
      const request = () => {
        qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 8) });
        return inner.now();
      };
      return { port: inner, psn: qp.endpoint().psn, region, offers: ['SEND'], request, close: () => qp.close() };
    },
  };
}

test('a queue pair of the peer sends requests, and is closed when the check has ended', async () => {
  const { link, device, peer } = await open();
  const target = new LinkTarget({ device, link, services: [], requesters: [await sends(peer)] });
  const once = peer.query().memoryAvailable;
  const { port, psn, request } = (await target.requester({ anyOf: ['SEND'] })) as Requester;
  request({ opcode: 'SEND', length: 8, count: 1 });
  const arrival = await port.receive(port.now() + 1e9);
  expect(decode(arrival?.frame as Uint8Array).bth).toMatchObject({ opcode: Op.SEND_ONLY, psn });
  await target.release();
  expect(peer.query().memoryAvailable).toBe(once);
});

test('without a service that sends requests the checks name what to start', async () => {
  const { link, device, peer } = await open();
  const connect = () => Promise.reject(new Error('nobody listens'));
  const away: RequesterService = { ...(await sends(peer)), connect };
  const target = new LinkTarget({ device, link, services: [], requesters: [away] });
  for (let i = 0; i < 2; i++) expect(await target.requester({ anyOf: ['SEND'] })).toBe('start on the peer: a sender');
  expect(await target.requester({ anyOf: ['WRITE', 'READ'] })).toBe(
    'no service makes the peer send WRITE or READ to us',
  );
  expect(target.missing).toEqual([['a sender', 'nobody listens']]);
});

test('connections of a check are closed when it has ended', async () => {
  const { link, device, peer } = await open();
  const target = new LinkTarget({ device, link, services: [await serveRegions(peer)] });
  await target.responder({ receives: false });
  await target.release();
  const once = device.query().memoryAvailable;
  for (let i = 0; i < 5; i++) {
    expect(await target.responder({ receives: false })).not.toBeTypeOf('string');
    await target.release();
  }
  expect(device.query().memoryAvailable).toBe(once);
}, 30_000);
