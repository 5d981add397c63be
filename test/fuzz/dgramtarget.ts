/**
 * Datagrams for a socket of `wasm-roce/dgram`: introductions by UDP, and messages to its queue pair, whose integers are
 * at their edges. The introductions go through the kernel, so this target runs in real time.
 */
import { createSocket as createUdpSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createSocket, type Socket } from '../../src/dgram.js';
import { type AddressHandle, createMemoryHub, type Device, type Mr, openDevice, type Qp } from '../../src/index.js';
import { encodeHeader, encodeIntroduction, MESSAGE_BYTES, QKEY } from '../../src/protocols/rsocket/datagram/wire.js';
import { eventually } from '../kit/eventually.js';
import type { Random } from '../kit/random.js';
import { Uncaught } from '../kit/uncaught.js';
import type { FuzzTarget, Session } from './fuzzer.js';
import { edge, Fields } from './protocols/edges.js';

const [OWN, PEER] = ['127.0.0.1', '127.0.0.2'];
const BATCH = 16;
/** First byte of an input. */
enum Way {
  INTRODUCTION,
  MESSAGE,
}

class DgramSession implements Session {
  readonly #uncaught = new Uncaught();

  private constructor(
    readonly devices: readonly Device[],
    readonly socket: Socket,
    readonly udp: UdpSocket,
    readonly raw: { readonly qp: Qp; readonly mr: Mr; readonly ah: AddressHandle; readonly to: number },
  ) {}

  static async open(seed: number): Promise<DgramSession> {
    const hub = createMemoryHub();
    const [own, peer] = await Promise.all(
      [OWN, PEER].map((address) => openDevice({ hub, addresses: [address], seed })),
    );
    const [device, server] = [own as Device, peer as Device];
    const socket = createSocket({ type: 'udp4', device: server });
    socket.on('error', () => {});
    socket.on('message', (message, { port, address }) => {
      if (`${message}` === 'honest') socket.send('answer', port, address);
    });
    await once(socket.bind(0, PEER), 'listening');
    const udp = createUdpSocket('udp4');
    await new Promise<void>((resolve) => udp.bind(0, OWN, resolve));
    const pd = await device.allocPd();
    const mr = await pd.regMr(BATCH * MESSAGE_BYTES);
    const sizes = { maxSendWr: 4 * BATCH, sqSigAll: false };
    const qp = await pd.createQp({ type: 'UD', sendCq: await device.createCq({ cqe: 4 * BATCH }), ...sizes });
    await qp.activate({ qkey: QKEY });
    const ah = await pd.createAh({ grh: { dgid: PEER } });
    // the answer to an introduction says which queue pair the socket has
    udp.send(encodeIntroduction(OWN, { qpNum: qp.qpNum, message: Buffer.from('hello') }), socket.address().port, PEER);
    const [answer] = (await once(udp, 'message')) as [Buffer];
    return new DgramSession([device, server], socket, udp, { qp, mr, ah, to: answer.readUInt32BE(8) });
  }

  next(random: Random): Uint8Array {
    const isIntroduction = random.chance(0.3);
    const rest = random.bytes(random.below(random.pick([4, 100, 1500])));
    const head = isIntroduction
      ? encodeIntroduction(OWN, { qpNum: edge(random, 7) & 0xff_ffff, message: rest })
      : Buffer.concat([encodeHeader(OWN, edge(random) & 0xffff), rest]);
    for (let n = random.below(4); n > 0; n--) head[random.below(Math.min(16, head.length))] = edge(random) & 0xff;
    const bytes = random.chance(0.95) ? head : head.subarray(0, random.below(head.length));
    const way = new Fields(1, 'BE').put(1, isIntroduction ? Way.INTRODUCTION : Way.MESSAGE);
    return Buffer.concat([way.bytes, bytes]);
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    const { qp, mr, ah, to: remoteQpn } = this.raw;
    for (const [n, [way, ...bytes]] of inputs.entries()) {
      const data = Uint8Array.from(bytes);
      if (way === Way.INTRODUCTION) {
        this.udp.send(data, this.socket.address().port, PEER);
        continue;
      }
      mr.buffer.set(data, n * MESSAGE_BYTES);
      const sgList = mr.sge(n * MESSAGE_BYTES, data.length);
      qp.postSend({ opcode: 'SEND', sgList, ah, remoteQpn, remoteQkey: QKEY, signaled: false });
    }
    for (let n = 0; n < 3; n++) await new Promise((resolve) => setImmediate(resolve));
    this.#uncaught.check();
  }

  async check(): Promise<void> {
    const honest = createSocket({ type: 'udp4', device: this.devices[0] as Device });
    const answers: string[] = [];
    honest.on('message', (message) => answers.push(`${message}`));
    await eventually(() => {
      honest.send('honest', this.socket.address().port, PEER);
      if (!answers.includes('answer')) throw new Error('an honest peer gets no answer');
    });
    honest.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.udp.close();
    this.socket.close();
    await once(this.socket, 'close');
    for (const device of this.devices) await device.close({ force: true });
    this.#uncaught[Symbol.dispose]();
  }
}

export const dgramTarget: FuzzTarget = {
  name: 'dgram',
  about: 'introductions and messages for a datagram socket, whose integers are at their edges',
  batch: BATCH,
  batches: 100,
  open: (seed) => DgramSession.open(seed),
};
