/** Collectives: the private data of a rank, credits, data, and control messages. */
import { type Communicator, openCommunicator } from '../../../src/collective.js';
import { CREDIT_BYTES, encodeHello, immediate, Kind } from '../../../src/protocols/collective/wire.js';
import type { Random } from '../../kit/random.js';
import { edge, edge64, Fields } from './edges.js';
import type { FuzzedProtocol } from './protocol.js';
import { asClient, type RawEnd } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const PORT = 29_500;
const HOST = '10.0.0.2';
const RIGHT = { rank: 1, size: 2, port: 1, group: '' };
let memory = { address: 0n, rkey: 0 };

function privateData(random?: Random): Uint8Array {
  const place = { fifoAddr: memory.address, fifoRkey: memory.rkey };
  if (random === undefined) return encodeHello({ ...RIGHT, ...place });
  const u16 = (right: number) => (random.chance(0.1) ? edge(random, right) & 0xffff : right);
  return encodeHello({
    ...{ rank: u16(1), size: u16(2), port: u16(1), group: random.chance(0.1) ? 'other' : '' },
    ...{
      fifoAddr: random.chance(0.3) ? edge64(random, memory.address) : memory.address,
      fifoRkey: edge(random, memory.rkey),
    },
  });
}

function control(random: Random): string {
  const number = () => random.pick([0, 1, 2, -1, 1.5, 65_535, 65_536, 2 ** 31, 2 ** 53, 1e300]);
  const message = {
    type: random.pick(['endpoint', 'abort', 'leave', 'none', 7]),
    ...{ rank: number(), port: number() },
    ...{ host: random.pick(['10.0.0.1', '', 'x'.repeat(300)]), code: random.pick(['EPROTO', '', 5]), text: 'fuzz' },
  };
  return JSON.stringify(message);
}

/** The memory of rank 0 that takes credits. */
function learn(end: RawEnd): void {
  memory = { address: end.address, rkey: end.memory.rkey };
  if (end.peerData.length < 24) return;
  const hello = Buffer.from(end.peerData);
  end.target = { addr: hello.readBigUInt64BE(12), rkey: hello.readUInt32BE(20) };
}

function message(random: Random, address: bigint, rkey: number): PartialStep {
  const lane = random.chance(0.95) ? random.below(4) : random.below(16);
  const tag = random.chance(0.5) ? random.u32() & 0xff_ffff : random.below(4) << 16;
  const imm = (kind: number) => immediate(kind, lane, tag);
  switch (random.below(5)) {
    case 0: {
      const credit = new Fields(CREDIT_BYTES, 'BE').put64(edge64(random, address)).put(4, edge(random, rkey));
      const addr = BigInt((lane % 4) * 2 * CREDIT_BYTES + random.below(2) * CREDIT_BYTES);
      return { act: Act.WRITE_WITH_IMM, imm: imm(Kind.CREDIT), addr, payload: credit.put(4, edge(random, 400)).bytes };
    }
    case 1:
      return { act: Act.SEND_WITH_IMM, imm: imm(Kind.EAGER), payload: random.bytes(random.below(500)) };
    case 2:
      return { act: Act.SEND_WITH_IMM, imm: imm(Kind.CONTROL), payload: Buffer.from(control(random)) };
    case 3:
      return { act: Act.WRITE_WITH_IMM, imm: imm(Kind.DATA), addr: edge64(random), bytes: random.below(64) };
    default:
      return {
        act: Act.SEND_WITH_IMM,
        imm: random.chance(0.5) ? random.u32() : imm(random.below(8)),
        payload: random.bytes(8),
      };
  }
}

export const collective: FuzzedProtocol = {
  name: 'collective',
  about: 'a rank whose messages have integers at their edges',
  privateData,
  message,
  learn,
  async open({ device, peer }) {
    // rank 0 ends with each connection, and begins again with the next one
    let opening: Promise<Communicator | undefined> = Promise.resolve(undefined);
    const options = { rank: 0, size: 2, device: peer, host: HOST, reduceThread: 'own', joinTimeout: 3000 } as const;
    const close = async () => {
      await (await opening)?.close();
    };
    const connect = asClient(HOST, PORT);
    return {
      async meet(end, data) {
        await close();
        opening = openCommunicator(options).catch(() => undefined);
        void opening.then((communicator) => communicator?.allReduce(new Float32Array(100)).catch(() => {}));
        return connect(end, data);
      },
      async talk() {
        await close();
        const ranks = await Promise.all([openCommunicator(options), openCommunicator({ ...options, rank: 1, device })]);
        await Promise.all(ranks.map((rank) => rank.allReduce(new Float32Array(200_000))));
        await Promise.all(ranks.map((rank) => rank.close()));
      },
      close,
    };
  },
};
