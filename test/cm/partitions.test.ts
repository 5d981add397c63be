/** The partitions of connections and of the messages that make them: P_Keys of requests and replies. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { CmCore } from '../../src/cm/core/core.js';
import { Partitions } from '../../src/cm/core/partitions.js';
import { createCmId } from '../../src/cm/index.js';
import { createMemoryHub, type Device, type OpenOptions } from '../../src/index.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { decode, isRoce } from '../../src/probe/packet/decode.js';
import { openOn } from '../verbs/pair.js';
import { ACCEPT, CONNECT, OUR_GUID } from './conversation.js';
import * as mads from './mads.js';

const PORT = 7471;
let ids = 0;

/** Two devices, and a capture of all that they send. */
class Partitioned implements AsyncDisposable {
  readonly #chunks: Buffer[];
  private constructor(
    readonly a: Device,
    readonly b: Device,
    chunks: Buffer[],
  ) {
    this.#chunks = chunks;
  }

  static async open(a: OpenOptions['pkeys'], b: OpenOptions['pkeys']): Promise<Partitioned> {
    const hub = createMemoryHub();
    const chunks: Buffer[] = [];
    const pcap = new Writable({ write: (chunk, _encoding, done) => done(void chunks.push(chunk)) });
    const client = await openOn(hub, { pcap, pkeys: a as number[] });
    return new Partitioned(client, await openOn(hub, { pkeys: b as number[] }), chunks);
  }

  get address(): string {
    return this.b.gids.find(({ address }) => !address.includes(':'))?.address as string;
  }

  /** Returns the P_Keys of all packets that left (`>`) or arrived (`<`), each once. */
  pkeys(destQp: 'cm' | 'any' = 'any'): string[] {
    const { packets } = readCapture(Buffer.concat(this.#chunks));
    const seen = packets
      .filter(({ data }) => isRoce(data))
      .map(({ data, direction }) => ({ bth: decode(data).bth, arrow: direction === 2 ? '>' : '<' }))
      .filter(({ bth }) => destQp === 'any' || bth.destQp === 1)
      .map(({ bth, arrow }) => `${arrow}${bth.pkey.toString(16).padStart(4, '0')}`);
    return [...new Set(seen)].sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.a.close({ force: true });
    await this.b.close({ force: true });
  }
}

test('a client chooses the partition, and both ends send all packets in it', async () => {
  await using pair = await Partitioned.open([0xffff, 0x8001], [0x8002, 0xffff, 0x0001]);
  await using server = await pair.b.listen({ port: PORT });
  const accepted = server.next().then((request) => request?.accept());
  {
    await using client = await pair.a.connect({ host: pair.address, port: PORT, pkeyIndex: 1 });
    await using other = await accepted;
    expect([client.qp.query().pkeyIndex, other?.qp.query().pkeyIndex]).toEqual([1, 2]);
    await client.send(Buffer.from('hello'));
    expect((await other?.receive())?.data).toEqual(Buffer.from('hello'));
  }
  expect(pair.pkeys()).toEqual(['<0001', '>8001']);
});

test('a REJ leaves in the partition of its request', async () => {
  await using pair = await Partitioned.open([0xffff, 0x8001], [0xffff, 0x0001]);
  // refusals are for devices that have listened
  await (await pair.b.listen({ port: PORT })).close();
  await expect(pair.a.connect({ host: pair.address, port: PORT, pkeyIndex: 1 })).rejects.toThrow('refused');
  expect(pair.pkeys('cm')).toEqual(['<0001', '>8001']);
});

test('a SIDR_REP leaves in the partition of its request', async () => {
  await using pair = await Partitioned.open([0xffff, 0x8001], [0xffff, 0x8001]);
  const listener = createCmId(pair.b, { space: 'UDP' });
  await listener.bindAddr('::', PORT);
  await listener.listen();
  const id = createCmId(pair.a, { space: 'UDP', pkeyIndex: 1 });
  await id.resolveAddr(pair.address, PORT);
  await id.resolveRoute();
  const asked = id.connect();
  await (await listener.getRequest()).accept({ qpNum: 5 });
  await asked;
  expect(pair.pkeys()).toEqual(['<8001', '>8001']);
});

test('an index outside of the P_Key table is refused', async () => {
  await using pair = await Partitioned.open([0xffff, 0x8001], [0xffff]);
  for (const pkeyIndex of [2, -1])
    expect(() => createCmId(pair.a, { pkeyIndex })).toThrow(`pkeyIndex is ${pkeyIndex}, must be from 0 to 1`);
  await expect(pair.a.connect({ host: pair.address, port: PORT, pkeyIndex: 2 })).rejects.toThrow(
    'pkeyIndex is 2, must be from 0 to 1',
  );
});

test('messages leave in the partition of the REQ’s packet, and the queue pair is in the one that the REQ names', () => {
  const core = new CmCore({
    guid: OUR_GUID,
    random: () => ++ids,
    host: { isLocal: () => true, maxMtu: 4096 },
    partitions: new Partitions([0xffff, 0x8001, 0x8002]),
  });
  core.listen({ space: 'TCP', port: mads.REQ.port, transport: 'RC', backlog: 10 });
  const route = { local: mads.OUR_ADDRESS, remote: mads.PEER_ADDRESS, pkeyIndex: 2 };
  core.receive(mads.req({ pkey: 0x8001 }), route, 0);
  const [event] = core.takeEvents();
  if (event?.type !== 'CONNECT_REQUEST') throw new Error('no request');
  expect(core.prepareAccept(event.id, ACCEPT).init.pkeyIndex).toBe(1);
  core.accept(event.id, ACCEPT, 0);
  core.expire(60_000);
  const sent = core.takeMessages();
  expect(sent.length).toBeGreaterThan(1);
  expect(new Set(sent.map(({ pkeyIndex }) => pkeyIndex))).toEqual(new Set([2]));
});

test('a REQ carries the P_Key of the index', () => {
  const core = new CmCore({
    guid: OUR_GUID,
    random: () => ++ids,
    host: { isLocal: () => true, maxMtu: 4096 },
    partitions: new Partitions([0xffff, 0x8001]),
  });
  core.connect({ ...CONNECT, pkeyIndex: 1 }, 0);
  core.connect(CONNECT, 0);
  const reqs = core.takeMessages();
  expect(
    reqs.map(({ bytes, pkeyIndex }) => [(bytes[24 + 48] as number) * 256 + (bytes[24 + 49] as number), pkeyIndex]),
  ).toEqual([
    [0x8001, 1],
    [0xffff, 0],
  ]);
});
