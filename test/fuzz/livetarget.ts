/**
 * Frames for the live queue pair of a device, from a third end of its network: through the memory link, or through the
 * native packet link over a veth pair. At the end of each epoch, new queue pairs transfer a message in both directions.
 */

import type { Device, Endpoint, OpenOptions } from '../../src/index.js';
import { throwIfFailed, VerbsError } from '../../src/index.js';
import type { Link } from '../../src/link/link.js';
import { MemoryHub, memoryLink } from '../../src/link/memory/link.js';
import { PacketLink } from '../../src/link/packet.js';
import { netPrivilege } from '../kit/needs.js';
import type { Random } from '../kit/random.js';
import { sh, vethPair } from '../link/netns.js';
import { Rig } from '../link/rig.js';
import { ALL, type End, endOn, openOn, pattern } from '../verbs/pair.js';
import { KINDS } from './cardtarget.js';
import type { FuzzTarget, Session } from './fuzzer.js';
import { mutate } from './mutations.js';
import { seal } from './target.js';
import '../link/ownsockets.js';

const WAIT = { timeout: 20_000 };
const BATCH = 32;
const NET = 187;
let veths = 0;

/** The two devices of a session, and the link from which frames are injected. */
interface Network extends AsyncDisposable {
  readonly a: Device;
  readonly b: Device;
  readonly injector: Rig;
}

async function memoryNetwork(seed: number): Promise<Network> {
  const hub = new MemoryHub({ coalesce: true });
  const [a, b] = [await openOn(hub, { seed }), await openOn(hub, { seed: seed ^ 1 })];
  return network(a, b, memoryLink(hub, { addresses: ['10.66.0.66'] }), () => {});
}

async function packetNetwork(seed: number): Promise<Network> {
  const names = [`fza${veths}`, `fzb${veths++}`] as const;
  vethPair(names, NET, 4500);
  const open = (name: string, seed: number): Promise<Device> => {
    const options: OpenOptions = { link: 'packet', interface: name, mode: 'inline', memoryBytes: 64 << 20, seed };
    return openOn(new MemoryHub(), options);
  };
  const [a, b] = [await open(names[0], seed), await open(names[1], seed ^ 1)];
  return network(a, b, PacketLink.open({ interface: names[1] }), () => sh(`ip link del ${names[0]}`));
}

function network(a: Device, b: Device, link: Link, end: () => void): Network {
  return {
    ...{ a, b, injector: new Rig(link, { slots: 2 * BATCH }) },
    async [Symbol.asyncDispose]() {
      link.close();
      for (const device of [a, b]) await device.close({ force: true });
      end();
    },
  };
}

class LiveSession implements Session {
  #ends!: readonly [End, End];
  #at!: Endpoint;
  readonly #head: Uint8Array;

  private constructor(readonly network: Network) {
    const { a, b } = network;
    this.#head = Uint8Array.from([...a.link.interface.mac, ...b.link.interface.mac]);
  }

  static async open(network: Network): Promise<LiveSession> {
    const session = new LiveSession(network);
    await session.#connect();
    return session;
  }

  /** New queue pairs, with receives posted. */
  async #connect(): Promise<void> {
    const { a, b } = this.network;
    const [one, other] = [await endOn(a), await endOn(b)];
    await one.qp.connect(other.qp.endpoint(), { access: ALL });
    await other.qp.connect(one.qp.endpoint(), { access: ALL });
    this.#ends = [one, other];
    this.#at = one.qp.endpoint();
  }

  /** A frame of the corpus, mostly with the addresses, number, PSN and key that the queue pair expects. */
  next(random: Random): Uint8Array {
    const kind = random.pick(KINDS);
    const bytes = Uint8Array.from(kind);
    bytes.set(this.#head);
    if (bytes[12] === 8 && random.chance(0.95)) {
      const view = new DataView(bytes.buffer);
      const [a, b] = [this.network.a, this.network.b].map((device) => ipv4Of(device));
      bytes.set([...(b as number[]), ...(a as number[])], 26);
      const [{ qpNum: qpn, psn }, { mr }] = [this.#at, this.#ends[0]];
      view.setUint32(46, (view.getUint32(46) & 0xff000000) | qpn);
      const offset = random.pick([0, 0, 0, 1, 2, -1, random.below(64)]);
      view.setUint32(50, (view.getUint32(50) & 0xff000000) | ((psn + offset) & 0xffffff));
      if (bytes.length > 14 + 28 + 12 + 16 + 4 && random.chance(0.7)) {
        view.setBigUint64(54, BigInt(mr.iova) + BigInt(random.below(65536)));
        view.setUint32(62, mr.rkey);
      }
      seal(bytes);
    }
    return random.chance(0.5) ? mutate(random, bytes) : bytes;
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    const { injector } = this.network;
    const [one] = this.#ends;
    this.#postReceives();
    injector.put(...inputs);
    while (injector.tx.filled > 0) {
      injector.link.send(0);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await new Promise((resolve) => setImmediate(resolve));
    injector.link.receive(0);
    injector.take();
    this.#drain();
    if (one.qp.state !== 'RTS') await this.#reconnect();
  }

  /** Posts a few receives, unless enough are there. */
  #postReceives(): void {
    const [{ qp, mr }] = this.#ends;
    try {
      for (let i = 0; i < 4; i++) qp.postRecv({ wrId: i, sgList: mr.sge(1000 * i, 1000) });
    } catch (error) {
      if (!(error instanceof VerbsError)) throw error;
    }
  }

  #drain(): void {
    for (const { cq } of this.#ends) {
      const wcs = cq.createWcs(64);
      while (cq.poll(wcs) > 0);
    }
  }

  async #reconnect(): Promise<void> {
    for (const { qp, mr, cq, pd } of this.#ends) for (const object of [qp, mr, cq, pd]) await object.close();
    await this.#connect();
  }

  async check(): Promise<void> {
    await this.#reconnect();
    const [one, other] = this.#ends;
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      const bytes = pattern(10_000, from.qp.endpoint().qpNum);
      bytes.copy(from.mr.buffer, 0);
      to.qp.postRecv({ sgList: to.mr.sge(20_000, 10_000) });
      from.qp.postSend({ opcode: 'SEND', sgList: from.mr.sge(0, 10_000) });
      for (const { cq } of [from, to]) throwIfFailed(await cq.next(WAIT));
      if (!to.mr.buffer.subarray(20_000, 30_000).equals(bytes)) throw new Error('a message arrives with other bytes');
    }
    for (const device of [this.network.a, this.network.b])
      for (const [name, count] of Object.entries(device.counters()))
        if (!(count >= 0)) throw new Error(`counter ${name} of ${device} is ${count}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.network[Symbol.asyncDispose]();
  }
}

function ipv4Of(device: Device): number[] {
  const gid = device.gids.find(({ address }) => address.includes('.'));
  return (gid?.address ?? '0.0.0.0').split('.').map(Number);
}

const ABOUT = 'frames for the live queue pair of a device, through the';

export const memoryTarget: FuzzTarget = {
  ...{ name: 'memory', about: `${ABOUT} memory link`, batch: BATCH, batches: 100 },
  open: async (seed) => LiveSession.open(await memoryNetwork(seed)),
};

export const packetTarget: FuzzTarget = {
  ...{ name: 'packet', about: `${ABOUT} native packet link over a veth pair`, batch: BATCH, batches: 100 },
  unavailable: () => netPrivilege().reason || undefined,
  open: async (seed) => LiveSession.open(await packetNetwork(seed)),
};
