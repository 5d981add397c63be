/**
 * npm run soak: an endpoint, and for an hour peers that connect, transfer and are killed, while it is reloaded, its
 * interface goes down and comes up, and its addresses change. Afterwards its memory, descriptors, queue pairs and
 * timers must be what they were, every byte must have arrived as it was sent, and everybody must be served.
 *
 *   --minutes N   how long (60)
 */
import { randomInt } from 'node:crypto';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import { checkConfig } from '../../src/cli/endpoint/config.js';
import { Endpoint } from '../../src/cli/endpoint/endpoint.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { guestUnavailable } from '../interop/guest/guest.js';
import { addressesOf, CARD, InteropNetwork, networkUnavailable } from '../interop/guest/network.js';
import { createClientNetwork, GuestPeer, ip, OurPeer, type Peer } from './peers.js';
import { SLOT_BYTES } from './report.js';
import { leaks, type Resources, resourcesOf, settled, Tally } from './tally.js';

const CLIENTS = 3;
const CLIENT_ADDRESS = '10.77.0.5';
/** An address that the endpoint's interface has at times. */
const SECOND_ADDRESS = '10.77.0.22';
const SUITES = ['trixie', 'bookworm'];
/** Time for connections of killed peers to be given up (ms). */
const SETTLE_MS = 120_000;
const WARM_UP_MS = 20_000;

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '60' } } });
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new RangeError(`--minutes is ${values.minutes}, must be a positive number`);

const tally = new Tally();

/** The configuration; every other time with a service and a region more, which a reload brings and takes away. */
function configuration(isLarger: boolean) {
  const region = (size: number) => ({ size, access: ['remoteRead', 'remoteWrite'] });
  return checkConfig('soak', {
    interface: CARD.interface,
    memory: 2 ** 28,
    regions: { table: region(CLIENTS * SLOT_BYTES), ...(isLarger && { more: region(2 ** 20) }) },
    services: [
      ...['echo', 'regions', 'rping'].map((type) => ({ type })),
      { type: 'write-bw', size: 20_000, iters: 20 },
      ...(isLarger ? [{ type: 'echo', port: 7480 }] : []),
    ],
  });
}

/**
 * Calls back while the endpoint has no services: each keeps the receive buffers of its last connections for the next
 * ones, and how many those were is chance.
 */
async function withoutServices<T>(endpoint: Endpoint, measure: () => Promise<T>): Promise<T> {
  const usual = configuration(false);
  await endpoint.reload({ ...usual, services: [] });
  const result = await measure();
  await endpoint.reload(usual);
  return result;
}

const nothing = new Writable({ write: (_chunk, _encoding, done) => done() });

/** The events of the endpoint. Each returns it to its earlier state. */
function disturbances(endpoint: Endpoint, peers: readonly Peer[]): Readonly<Record<string, () => Promise<void>>> {
  return {
    'peers killed': async () => peers[randomInt(peers.length)]?.kill(),
    'endpoint reloaded': async () => {
      await endpoint.reload(configuration(true));
      await sleep(randomInt(500));
      await endpoint.reload(configuration(false));
    },
    'link down and up': async () => {
      ip(`link set ${CARD.interface} down`);
      await sleep(randomInt(3000));
      ip(
        `link set ${CARD.interface} up`,
        ...addressesOf(CARD).map((at) => `address replace ${at} dev ${CARD.interface}`),
      );
    },
    'address added and removed': async () => {
      ip(`address add ${SECOND_ADDRESS}/24 dev ${CARD.interface}`);
      await sleep(2000 + randomInt(3000));
      ip(`address del ${SECOND_ADDRESS}/24 dev ${CARD.interface}`);
    },
  };
}

/** Lets the peers work for `ms`, with disturbances between them, and stops them. */
async function work(endpoint: Endpoint, starts: readonly (() => Peer)[], ms: number): Promise<void> {
  const peers = starts.map((start) => start());
  const all = Object.entries(disturbances(endpoint, peers));
  const end = performance.now() + ms;
  for (let turn = 0; performance.now() < end; turn++) {
    await sleep(500 + randomInt(1500));
    // each in turn at first, so that a short run has them all
    const [name, disturb] = all[turn < all.length ? turn : randomInt(all.length)] as (typeof all)[number];
    await disturb();
    tally.add(name);
    if (turn % 60 === 59) console.log(`${Math.ceil((end - performance.now()) / 60_000)} minutes left`);
  }
  await Promise.all(peers.map((peer) => peer.stop()));
}

function print(before: Resources, after: Resources, worse: readonly string[]): void {
  const style = { head: [], border: [], compact: true };
  const events = new Table({ head: ['what happened', 'times'], style });
  for (const [name, count] of [...tally.counts].sort()) events.push([name, count]);
  const resources = new Table({ head: ['resource of the endpoint', 'before', 'after', ''], style });
  for (const [name, was] of Object.entries(before)) {
    const is = after[name as keyof Resources];
    resources.push([name, was, is, worse.includes(name) ? 'FAILED' : 'ok']);
  }
  console.log(`${events}\n${resources}`);
}

/** Returns whether all went well. */
async function soak(): Promise<boolean> {
  const reason = networkUnavailable();
  if (reason) throw new Error(`a soak ${reason}`);
  using _network = new InteropNetwork(1500);
  createClientNetwork(CLIENT_ADDRESS);
  const noGuests = guestUnavailable();
  if (noGuests) console.log(`no guests: ${noGuests}`);
  const guests = noGuests ? [] : await Promise.all(SUITES.map((suite, i) => GuestPeer.boot(suite, i)));
  const endpoint = await Endpoint.open(configuration(false), {}, new Log('text', nothing));
  endpoint.devices.failed.catch((error) => tally.add(`FAILED: ${error}`));
  try {
    const starts = [
      ...Array.from({ length: CLIENTS }, (_, i) => () => new OurPeer(i, [CARD.ipv4, CARD.ipv4, SECOND_ADDRESS], tally)),
      ...guests.flatMap((guest, i) =>
        guest ? [() => new GuestPeer(`Debian ${SUITES[i]}`, guest, CARD.ipv4, tally)] : [],
      ),
    ];
    const idle = await withoutServices(endpoint, () => resourcesOf(endpoint.devices.first));
    // caches and compiled code reach their size
    await work(endpoint, starts, WARM_UP_MS);
    const before = await withoutServices(endpoint, () =>
      settled(endpoint.devices.first, idle, SETTLE_MS, ['queue pairs', 'rdma_cm connections']),
    );
    await work(endpoint, starts, minutes * 60_000);
    const after = await withoutServices(endpoint, () => settled(endpoint.devices.first, before, SETTLE_MS));
    const worse = leaks(before, after);
    print(before, after, worse);
    for (const what of ['messages', 'regions'])
      if (!tally.counts.has(`our clients: ${what}`)) tally.add(`FAILED: no ${what} arrived`);
    const failures = [...tally.counts.keys()].filter((name) => name.startsWith('FAILED'));
    for (const failure of failures) console.log(failure);
    return worse.length === 0 && failures.length === 0;
  } finally {
    await endpoint.stop();
    for (const guest of guests) await guest?.stop();
  }
}

process.exit((await soak()) ? 0 : 1);
