/** Rsockets: private data, lists of memory, and immediate data. */
import { createServer, Socket } from '../../../src/net.js';
import {
  CONNECT_BYTES,
  decodeConnectData,
  immediate,
  MAPPING_BYTES,
  TARGET_BYTES,
} from '../../../src/protocols/rsocket/wire.js';
import type { Random } from '../../kit/random.js';
import { PROTOCOLS } from '../../protocols/protocols.js';
import { edge, edge64, Fields } from './edges.js';
import { type FuzzedProtocol, HOSTILE_HOST, keepWriting, talkAsClient } from './protocol.js';
import { asClient, asService, type RawEnd } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const PORT = 7000;
const FLOW = { responderResources: 0, flowControl: true };
const HALF = 4096;
const MAPPINGS = 4;
let memory = { address: 0n, rkey: 0 };

function privateData(random?: Random): Uint8Array {
  const { address, rkey } = memory;
  const number = (right: number) => (random?.chance(0.2) ? edge(random, right) : right);
  const place = (right: bigint) => (random?.chance(0.3) ? edge64(random, right) : right);
  const fields = new Fields(CONNECT_BYTES, 'BE');
  fields.put(1, number(1)).put(1, number(2)).put(2, number(384)).at(7).put(1, number(MAPPINGS));
  fields.put64(place(address)).put(4, number(rkey)).put(4, number(2));
  fields
    .put64(place(address + 4096n))
    .put(4, number(rkey))
    .put(4, number(HALF));
  return fields.bytes;
}

/** Its target is the buffer that the other end has announced; the list and the table of mappings are before it. */
function learn(end: RawEnd): void {
  memory = { address: end.address, rkey: end.memory.rkey };
  if (end.target.rkey !== 0 || end.peerData.length < CONNECT_BYTES) return;
  try {
    end.target = decodeConnectData(end.peerData).buffer;
  } catch {
    // it was not accepted
  }
}

function message(random: Random, address: bigint, rkey: number): PartialStep {
  const table = -BigInt(MAPPINGS * MAPPING_BYTES);
  const list = table - BigInt(2 * TARGET_BYTES);
  const target = (fields: Fields) =>
    fields.put64(edge64(random, address)).put(4, edge(random, rkey)).put(4, edge(random, HALF));
  switch (random.below(6)) {
    case 0:
      return { act: Act.WRITE_WITH_IMM, imm: random.u32(), bytes: random.below(100) };
    case 1: {
      const payload = target(new Fields(TARGET_BYTES, 'LE')).bytes;
      const addr = list + BigInt(random.below(2) * TARGET_BYTES);
      return { act: Act.WRITE_WITH_IMM, imm: immediate(4, edge(random, 400) & 0xffff), addr, payload };
    }
    case 2: {
      const index = random.below(MAPPINGS);
      const fields = new Fields(MAPPING_BYTES, 'LE').put64(edge64(random));
      const addr = table + BigInt(index * MAPPING_BYTES);
      return { act: Act.WRITE_WITH_IMM, imm: immediate(6, edge(random, index)), addr, payload: target(fields).bytes };
    }
    case 3:
      return { act: Act.SEND, payload: random.bytes(random.below(100)) };
    case 4:
      return { act: Act.WRITE, addr: edge64(random, list), bytes: random.below(64) };
    default: {
      const bytes = random.below(2000);
      return { act: Act.WRITE_WITH_IMM, imm: immediate(random.pick([0, 0, 0, 7]), edge(random, bytes)), bytes };
    }
  }
}

/** The use of memory that the peer maps. */
const writeMapped = (socket: Socket) => socket.iowrite(Buffer.alloc(100), 0).catch(() => {});

export const rsocketServer: FuzzedProtocol = {
  name: 'rsocket',
  about: 'a client of rsockets, whose messages have integers at their edges',
  privateData,
  message,
  learn,
  async open(ends) {
    const server = createServer({ device: ends.peer, iomapSize: MAPPINGS }, (socket) => {
      socket.on('error', () => {});
      socket.on('data', () => void writeMapped(socket));
      // the honest one gets back what it has sent
      if (socket.remoteAddress === HOSTILE_HOST) keepWriting(socket);
      else socket.pipe(socket);
    });
    await new Promise<void>((resolve) => server.listen(PORT, resolve));
    const close = () => server[Symbol.asyncDispose]();
    return { meet: asClient('10.0.0.2', PORT, FLOW), talk: () => PROTOCOLS.net.talk(ends), close };
  },
};

export const rsocketClient: FuzzedProtocol = {
  name: 'rsocket-client',
  about: 'a server of rsockets, whose messages have integers at their edges',
  privateData,
  message,
  learn,
  async open({ device, peer }, hostile) {
    let socket: Socket | undefined;
    const invite = () => {
      socket?.destroy();
      const next = new Socket({ device: peer, iomapSize: MAPPINGS });
      socket = next;
      next.on('error', () => {}).on('data', () => void writeMapped(next));
      next.connect(PORT, HOSTILE_HOST);
      keepWriting(next);
    };
    const meet = await asService(hostile, PORT, invite, FLOW);
    const close = async () => socket?.destroy();
    const talk = async () => {
      await close();
      await talkAsClient(PROTOCOLS.net, { device, peer });
    };
    return { meet, talk, close };
  },
};
