/**
 * Damaged messages for the communication manager of a device that listens. The sender learns the ids of the device's
 * answers, so that later messages name its connections. At the end of each epoch an honest client connects.
 */
import { type Device, MemoryHub } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { macText } from '../../src/probe/packet/address.js';
import { datagram, encodeFrame, flowOf } from '../../src/probe/packet/packets.js';
import type { Random } from '../kit/random.js';
import { Rig } from '../link/rig.js';
import { openOn } from '../verbs/pair.js';
import { type FuzzTarget, readCorpus, type Session } from './fuzzer.js';

const MADS = readCorpus(new URL('corpus/mads/kinds.hex', import.meta.url));
const [LOCAL_ID, REMOTE_ID] = [24, 28];
const [SERVER, ATTACKER] = ['10.0.0.1', '10.0.0.66'];
const PORT = 7174;
const GSI = { qpn: 1, qkey: 0x8001_0000 };
const ETHERNET_TO_MAD = 14 + 28 + 12 + 8;
const BATCH = 16;

class CmSession implements Session {
  readonly #injector: Rig;
  readonly #at;
  /** Ids of the device's connections, the last ones. */
  readonly #ids: number[] = [];
  #psn = 0;

  private constructor(
    readonly server: Device,
    readonly client: Device,
    hub: MemoryHub,
  ) {
    this.#injector = new Rig(memoryLink(hub, { addresses: [ATTACKER] }), { slots: 256 });
    const { mac } = server.link.interface;
    this.#at = flowOf({ srcIp: ATTACKER, dstIp: SERVER, dstMac: macText(mac), destQp: GSI.qpn, srcQp: GSI.qpn });
  }

  static async open(seed: number): Promise<CmSession> {
    const hub = new MemoryHub();
    const device = (address: string, seed: number) => openOn(hub, { addresses: [address], seed, mode: 'inline' });
    const session = new CmSession(await device(SERVER, seed), await device('10.0.0.2', seed ^ 1), hub);
    const server = await session.server.listen({ port: PORT });
    server.on('connection', (connection) => {
      void (async () => {
        for await (const { data } of connection) await connection.send(data);
      })().catch(() => {});
    });
    return session;
  }

  next(random: Random): Uint8Array {
    const mad = Uint8Array.from(random.pick(MADS));
    const view = new DataView(mad.buffer);
    if (random.chance(0.5)) view.setUint32(LOCAL_ID, random.chance(0.5) ? random.below(8) : random.u32());
    if (this.#ids.length > 0 && random.chance(0.8)) view.setUint32(REMOTE_ID, random.pick(this.#ids));
    if (random.chance(0.3)) mad.set(random.bytes(random.below(100)), 24 + random.below(100));
    if (random.chance(0.7))
      for (let n = random.between(1, 6); n > 0; n--) mad[random.below(mad.length)] = random.u32() & 255;
    if (random.chance(0.05)) return mad.subarray(0, random.below(256));
    return random.chance(0.03) ? Uint8Array.from([...mad, ...random.bytes(random.below(300))]) : mad;
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    for (const payload of inputs) {
      const packet = datagram.sendOnly({ psn: this.#psn++ & 0xffffff, payload, qkey: GSI.qkey, srcQp: GSI.qpn });
      this.#injector.put(encodeFrame(this.#at, packet));
    }
    this.#injector.link.send(0);
    for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
    for (const { frame: answer } of this.#injector.take())
      if (answer.length > ETHERNET_TO_MAD + REMOTE_ID) this.#ids.push(answer.readUInt32BE(ETHERNET_TO_MAD + LOCAL_ID));
    this.#ids.splice(0, this.#ids.length - 64);
  }

  async check(): Promise<void> {
    const connection = await this.client.connect({ host: SERVER, port: PORT });
    await connection.send(Buffer.from('honest'));
    const answer = await connection.receive();
    if (answer?.data.toString() !== 'honest') throw new Error(`an honest client gets ${answer?.data}`);
    await connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#injector.link.close();
    for (const device of [this.client, this.server]) await device.close({ force: true });
  }
}

export const cmTarget: FuzzTarget = {
  name: 'cm',
  about: 'damaged messages for the communication manager of a device that listens',
  batch: BATCH,
  batches: 60,
  open: (seed) => CmSession.open(seed),
};
