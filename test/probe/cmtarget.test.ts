// Checks of the connection manager of an endpoint over the memory link.
import { Writable } from 'node:stream';
import { afterEach, expect, test } from 'vitest';
import { RdmaService } from '../../src/cli/endpoint/listener.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { regionsHandler } from '../../src/cli/endpoint/messages.js';
import type { Service } from '../../src/cli/endpoint/service.js';
import { PeerManager } from '../../src/cli/probe/manager.js';
import { LinkTarget } from '../../src/cli/probe/target.js';
import { createCmId, createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { describe } from '../../src/probe/packet/describe.js';
import { CHECKS, type CmCheck, runCheck, runChecks, ScriptedLink } from '../../src/probe.js';
import { eventually } from '../kit/eventually.js';

const devices: Device[] = [];
const services: Service[] = [];
afterEach(async () => {
  for (const service of services.splice(0)) await service.close();
  for (const device of devices.splice(0)) await device.close({ force: true });
});

const PEER = '10.0.0.2';
const PORT = 7472;
const silent = new Log('text', new Writable({ write: (_chunk, _encoding, done) => done() }));
/** Checks of a connection manager. */
const MANAGING = CHECKS.filter((check) => 'connects' in check);

async function open([own, other] = ['10.0.0.1', PEER]) {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: [own] }));
  const device = await openDevice({ link });
  const peer = await openDevice({ hub, addresses: [other] });
  devices.push(device, peer);
  const manager = new PeerManager({ device, link, host: other, port: PORT });
  return { device, peer, target: new LinkTarget({ device, link, services: [], manager }) };
}

async function serve(peer: Device) {
  const pd = await peer.allocPd();
  services.push(
    await RdmaService.open(
      peer,
      { port: PORT },
      regionsHandler(pd, () => []),
      silent,
    ),
  );
}

test('an endpoint passes every check, and keeps nothing of them', async () => {
  const { peer, target } = await open();
  await serve(peer);
  const before = peer.qps().length;
  const others: string[] = [];
  for await (const { name, verdict, text, evidence } of runChecks(MANAGING, target, { isIntrusive: true })) {
    const packets = evidence.map(({ direction, frame }) => `  ${direction} ${describe(frame)}`);
    if (verdict !== 'pass') others.push(`${name}: ${verdict}: ${text}`, ...packets);
  }
  expect(others).toEqual([]);
  await eventually(() => expect(peer.qps().length).toBe(before));
}, 60_000);

test('an endpoint passes every check over IPv6', async () => {
  const { peer, target } = await open(['fd00::1', 'fd00::2']);
  await serve(peer);
  const names = ['rep-fields', 'unknown-service', 'other-address', 'unknown-datagram-service', 'private-data-header'];
  const checks = MANAGING.filter(({ name }) => names.includes(name));
  const verdicts: string[] = [];
  for await (const { verdict, text } of runChecks(checks, target, { isIntrusive: true })) verdicts.push(verdict + text);
  expect(verdicts).toEqual(names.map(() => 'pass'));
}, 30_000);

test('every GID is tried from every other of its kind, and those without an answer are named', async () => {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: ['10.0.0.1', 'fd00::1', 'fe80::1'] }));
  const device = await openDevice({ link });
  const peer = await openDevice({ hub, addresses: [PEER, '10.0.0.3', 'fd00::2', 'fe80::2'] });
  devices.push(device, peer);
  await serve(peer);
  const [check] = MANAGING.filter(({ name }) => name === 'every-gid');
  const found = async (gids: readonly string[]) => {
    const manager = new PeerManager({ device, link, host: PEER, port: PORT, gids });
    const target = new LinkTarget({ device, link, services: [], manager });
    const { verdict, text, measurements } = await runCheck(check as CmCheck, target);
    await target.release();
    return [verdict, text, measurements.gid_pairs, measurements.reached_gid_pairs];
  };
  expect(await found(['10.0.0.3', 'fd00::2', 'fe80::2'])).toEqual(['pass', '', [4], [4]]);
  expect(await found([])).toEqual(['pass', '', [1], [1]]);
  expect(await found(['10.0.0.77', 'fd00::2'])).toEqual([
    'fails',
    expect.stringMatching(/^1 of 3 pairs are not reached: 10\.0\.0\.1 to 10\.0\.0\.77: EHOSTUNREACH: /),
    ...[[3], [2]],
  ]);
});

test('the card’s own connections go on during the checks', async () => {
  const { device, peer, target } = await open();
  await serve(peer);
  const [check] = MANAGING.filter(({ name }) => name === 'distinct-numbers');
  const pd = await device.allocPd();
  const running = runChecks(check ? [check] : [], target).next();
  for (let i = 0; i < 5; i++) {
    const id = createCmId(device);
    await id.resolveAddr(PEER, PORT);
    await id.resolveRoute();
    await id.createQp(pd, { sendCq: await device.createCq() });
    await id.connect();
    await id.disconnect();
    await id.close();
  }
  expect((await running).value).toMatchObject({ verdict: 'pass' });
  await target.release();
}, 30_000);

test('a peer without a listener is not reachable, but refuses requests', async () => {
  const { device, peer, target } = await open();
  // the manager of a device begins with its first use
  const id = createCmId(peer);
  await id.bindAddr(PEER, 1234);
  const found: Record<string, string> = {};
  for await (const { name, verdict, text } of runChecks(MANAGING, target)) found[name] = `${verdict}: ${text}`;
  const start = `start wasm-roce endpoint --serve regions:${PORT}, or ucmatose -c 1000 -C 0 -p ${PORT}`;
  expect(found).toMatchObject({
    dreq: `not reachable: nobody accepts connections: ${start}`,
    'unknown-service': 'pass: ',
    'class-port-info': 'pass: ',
  });
  await id.close();
  expect(device.isClosed).toBe(false);
}, 30_000);
