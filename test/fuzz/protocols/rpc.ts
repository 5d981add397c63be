/** Calls: frames, several in a message. */

import { encodePrivateData } from '../../../src/protocols/message/privatedata.js';
import { FrameType, HEADER_BYTES, LARGE, PROTOCOL } from '../../../src/protocols/rpc/wire.js';
import { connect, createServer, type RpcClient } from '../../../src/rpc.js';
import type { Random } from '../../kit/random.js';
import { PROTOCOLS } from '../../protocols/protocols.js';
import { edge, edge64, Fields } from './edges.js';
import { type FuzzedProtocol, HOSTILE_HOST, talkAsClient } from './protocol.js';
import { asClient, asService } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const PORT = 7473;
const MESSAGE_BYTES = 66_048;
const DEPTH = { responderResources: 16, initiatorDepth: 16 };
const TYPES = Object.values(FrameType).filter((value): value is FrameType => typeof value === 'number');
const NAMES = ['echo', 'echo', 'wait', 'none', ''];

/** @param limit bytes of the private data of a REQ or a REP */
const privateData = (limit: number) => (random?: Random) =>
  encodePrivateData(PROTOCOL, random?.chance(0.2) ? edge(random, MESSAGE_BYTES) : MESSAGE_BYTES, limit);

function frame(random: Random, address: bigint, rkey: number): Buffer {
  const isLarge = random.chance(0.2);
  const name = Buffer.from(random.pick(NAMES));
  const body = isLarge ? new Fields(16, 'BE') : random.bytes(random.below(random.pick([4, 40, 400])));
  if (body instanceof Fields) body.put64(edge64(random, address)).put(4, edge(random, rkey)).put(4, edge(random, 3000));
  const bytes = body instanceof Fields ? body.bytes : body;
  const length = (right: number) => (random.chance(0.97) ? right : edge(random, right));
  const head = new Fields(HEADER_BYTES, 'BE').put(1, random.chance(0.97) ? random.pick(TYPES) : edge(random));
  head
    .put(1, isLarge ? LARGE : random.chance(0.97) ? 0 : edge(random))
    .put(1, length(name.length))
    .put(1, 0);
  head.put(4, random.chance(0.9) ? random.below(8) : edge(random)).put(4, length(bytes.length));
  head.put(4, random.chance(0.7) ? random.below(20) : edge(random));
  return Buffer.concat([head.bytes, name, bytes]);
}

function message(random: Random, address: bigint, rkey: number): PartialStep {
  const frames = Array.from({ length: random.between(1, 5) }, () => frame(random, address, rkey));
  return { act: Act.SEND, payload: Buffer.concat(frames) };
}

export const rpcServer: FuzzedProtocol = {
  name: 'rpc',
  about: 'a client of calls, whose frames have integers at their edges',
  privateData: privateData(56),
  message,
  async open(ends) {
    const server = await createServer({
      device: ends.peer,
      methods: { echo: (request) => request, wait: async (_, { signal }) => untilAborted(signal) },
      streams: {
        async echo(stream) {
          for await (const each of stream) await stream.write(each);
        },
        async wait(stream, { signal }) {
          await stream.read();
          await untilAborted(signal);
        },
      },
    });
    const close = () => server.close();
    return { meet: asClient('10.0.0.2', PORT, DEPTH), talk: () => PROTOCOLS.rpc.talk(ends), close };
  },
};

/** A handler that waits until its client wants no answer. */
const untilAborted = (signal: AbortSignal) =>
  new Promise<Uint8Array>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason));
  });

export const rpcClient: FuzzedProtocol = {
  name: 'rpc-client',
  about: 'a server of calls, whose frames have integers at their edges',
  privateData: privateData(196),
  message,
  async open({ device, peer }, hostile) {
    let connecting: Promise<RpcClient | undefined> = Promise.resolve(undefined);
    const close = async () => {
      await (await connecting)?.close();
    };
    const work = async (client: RpcClient) => {
      const stream = client.stream('echo');
      const calls = [1, 100, 100_000].map((bytes) => client.call('echo', Buffer.alloc(bytes)));
      const reads = stream.write(Buffer.alloc(10)).then(() => stream.read());
      await Promise.allSettled([...calls, reads]);
    };
    const invite = () => {
      const before = connecting;
      connecting = connect({ device: peer, host: HOSTILE_HOST, timeout: 2000 }).catch(() => undefined);
      void connecting.then((client) => client && work(client));
      void before.then((client) => client?.close());
    };
    const meet = await asService(hostile, PORT, invite, DEPTH);
    const talk = async () => {
      await close();
      await talkAsClient(PROTOCOLS.rpc, { device, peer });
    };
    return { meet, talk, close };
  },
};
