/** Messages of connections, and those of their streams. */
import type { Random } from '../../kit/random.js';
import { PROTOCOLS } from '../../protocols/protocols.js';
import { edge } from './edges.js';
import type { FuzzedProtocol } from './protocol.js';
import { asClient } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const PORT = 7000;
const DEPTH = { responderResources: 16, initiatorDepth: 16 };

const privateData = (random?: Random) => random?.bytes(random.below(56)) ?? new Uint8Array(0);

function message(random: Random): PartialStep {
  const payload = random.bytes(random.below(random.pick([2, 8, 500])));
  if (random.chance(0.1)) return { act: Act.SEND, payload };
  const [kind, credits] = [random.below(7), edge(random, 20) & 0xffff];
  return { act: Act.SEND_WITH_IMM, imm: random.chance(0.9) ? (kind << 24) | credits : edge(random), payload };
}

const of = (name: 'messages' | 'messages as a stream', about: string): FuzzedProtocol => ({
  name: name === 'messages' ? 'messages' : 'stream',
  about,
  privateData,
  message,
  async open(ends) {
    const close = await PROTOCOLS[name].serve(ends);
    return { meet: asClient('10.0.0.2', PORT, DEPTH), talk: () => PROTOCOLS[name].talk(ends), close };
  },
});

export const messages = of('messages', 'a client of connections, whose messages are of any kind');
export const messageStream = of(
  'messages as a stream',
  'a client of streams, whose messages have any kind and credits',
);
