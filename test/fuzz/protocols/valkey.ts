/** Valkey Over RDMA: messages of 32 bytes, and immediate data. */
import { MESSAGE_BYTES, Opcode } from '../../../src/protocols/valkey/wire.js';
import { createServer, ValkeySocket } from '../../../src/valkey.js';
import type { Random } from '../../kit/random.js';
import { PROTOCOLS } from '../../protocols/protocols.js';
import { edge, edge64, Fields } from './edges.js';
import { type FuzzedProtocol, HOSTILE_HOST, keepWriting, talkAsClient } from './protocol.js';
import { asClient, asService, type RawEnd } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const PORT = 7000;
const BUFFER_BYTES = 4096;

const privateData = () => new Uint8Array(0);

/** The first message of the other end announces its buffer. */
function learn(end: RawEnd): void {
  const first = end.received(0);
  if (first.readUInt16BE(0) !== Opcode.REGISTER_XFER_MEMORY) return;
  end.target = { addr: first.readBigUInt64BE(16), rkey: first.readUInt32BE(28) };
}

function message(random: Random, address: bigint, rkey: number): PartialStep {
  if (random.chance(0.4)) {
    const bytes = random.below(2000);
    return { act: Act.WRITE_WITH_IMM, imm: edge(random, bytes), addr: edge64(random), bytes };
  }
  const isRegister = random.chance(0.6);
  const fields = new Fields(MESSAGE_BYTES, 'BE');
  fields.put(2, isRegister ? Opcode.REGISTER_XFER_MEMORY : edge(random, random.below(5)));
  fields.put(2, edge(random)).at(16);
  fields.put64(edge64(random, address)).put(4, edge(random, BUFFER_BYTES)).put(4, edge(random, rkey));
  return { act: Act.SEND, payload: random.chance(0.95) ? fields.bytes : fields.bytes.subarray(random.below(32)) };
}

export const valkeyServer: FuzzedProtocol = {
  name: 'valkey',
  about: 'a client of Valkey, whose messages have integers at their edges',
  privateData,
  message,
  learn,
  async open(ends) {
    const server = createServer({ device: ends.peer }, (socket) => {
      socket.on('error', () => {});
      socket.resume();
      keepWriting(socket);
    });
    await new Promise<void>((resolve) => server.listen(PORT, resolve));
    const honest = await PROTOCOLS.valkey.serve({ ...ends, port: PORT + 1 });
    const close = async () => {
      await server[Symbol.asyncDispose]();
      await honest();
    };
    return { meet: asClient('10.0.0.2', PORT), talk: () => PROTOCOLS.valkey.talk({ ...ends, port: PORT + 1 }), close };
  },
};

export const valkeyClient: FuzzedProtocol = {
  name: 'valkey-client',
  about: 'a server of Valkey, whose messages have integers at their edges',
  privateData,
  message,
  learn,
  async open({ device, peer }, hostile) {
    let socket: ValkeySocket | undefined;
    const invite = () => {
      socket?.destroy();
      socket = new ValkeySocket({ device: peer });
      socket.on('error', () => {}).resume();
      socket.connect(PORT, HOSTILE_HOST);
      keepWriting(socket);
    };
    const meet = await asService(hostile, PORT, invite);
    const close = async () => socket?.destroy();
    const talk = async () => {
      await close();
      await talkAsClient(PROTOCOLS.valkey, { device, peer });
    };
    return { meet, talk, close };
  },
};
