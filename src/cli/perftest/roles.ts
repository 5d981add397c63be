/** Client, server, and both at once. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { type Device, gidAddress } from '../../index.js';
import { memoryEnds, openWatched } from '../device.js';
import type { Output } from '../output.js';
import { Control, listen } from '../pingpong/handshake.js';
import { Exchange } from './handshake.js';
import { TEXT_KEYS } from './keys.js';
import { meetsByCm, type PerftestOptions } from './kinds.js';
import { measure, runWithTable, tell } from './measure.js';
import { answerByCm, answerByTcp, answerOn, askByCm, askByTcp, askOn, type Meeting, type Use } from './meeting.js';
import { type Result, runSession } from './session.js';

export async function runClient(host: string, options: PerftestOptions, output: Output): Promise<void> {
  const use: Use = ({ device, exchange, peer }) => measure(device, exchange, options, output, peer);
  await (meetsByCm(options) ? askByCm : askByTcp)(host, options, use);
}

export async function runServer(options: PerftestOptions, output: Output): Promise<void> {
  const use: Use = ({ device, exchange, peer }) => measure(device, exchange, options, output, peer);
  const onListening = (where: string) => output.note(`waiting for a client on ${where}`);
  await (meetsByCm(options) ? answerByCm : answerByTcp)(options, onListening, use);
}

/** Client and server on the memory link, in one process. */
export async function runBoth(options: PerftestOptions, output: Output): Promise<void> {
  const [ofClient, ofServer] = memoryEnds(options.open);
  await using device = await openWatched(ofClient);
  await using other = await openWatched(ofServer);
  const both = sharing(options);
  // the client alone is told to stop: the server goes when its peer does
  const { endless } = both;
  const serving = { ...both, ...(endless && { endless: { ...endless, onStop() {} } }) };
  const silent = { onConnected() {}, onInterval() {}, onBandwidth() {}, onLatency() {} };
  const results = {} as Record<Exchange['role'], Result>;
  const ask: Use = async ({ exchange, peer }) => {
    results.client = await runWithTable(device, exchange, both, output, peer);
  };
  const answer: Use = async ({ exchange, peer }) => {
    results.server = await runSession(other, exchange, serving, peer, silent, output);
  };
  await (meetsByCm(options) ? meetByCm : meetByTcp)([device, other], both, ask, answer);
  const { client, server } = results;
  const [received, lost] = [client.received + server.received, client.lost + server.lost];
  tell(device, 'client', both, output, { ...client, received, lost });
}

/** An end that goes on and on would keep the other one from its turns, and from posting receives before they are needed. */
function sharing(options: PerftestOptions): PerftestOptions {
  const { transport, txDepth, rxDepth, postList } = options;
  // what finds no receive is sent again by RC alone
  const most = transport === 'RC' ? txDepth : Math.max(postList, Math.floor(rxDepth / 2));
  return { ...options, spinMs: 0, yieldMs: 0, txDepth: Math.min(txDepth, most) };
}

type Two = readonly [Device, Device];

async function meetByCm([near, far]: Two, options: PerftestOptions, ask: Use, answer: Use): Promise<void> {
  await using server = await far.listen({ port: options.port });
  await Promise.all([askOn(near, addressOf(far, near), options, ask), answerOn(far, server, options, answer)]);
}

/** The hand-shake takes the host's own TCP. */
async function meetByTcp([near, far]: Two, options: PerftestOptions, ask: Use, answer: Use): Promise<void> {
  const server = createServer({ allowHalfOpen: true });
  await listen(server, { port: 0, host: '127.0.0.1' });
  const { port } = server.address() as { port: number };
  const connection = once(server, 'connection') as Promise<[Socket]>;
  const client = await Control.connect({ host: '127.0.0.1', port }, options.idleMs);
  const answering = new Control((await connection)[0], options.idleMs);
  const meeting = (device: Device, peer: Device, exchange: Exchange): Meeting => ({
    ...{ device, exchange },
    peer: { address: addressOf(peer, device), port },
  });
  try {
    await Promise.all([
      ask(meeting(near, far, new Exchange(client, 'client', TEXT_KEYS))).finally(() => client.close()),
      answer(meeting(far, near, new Exchange(answering, 'server', TEXT_KEYS))).finally(() => answering.close()),
    ]);
  } finally {
    server.close();
  }
}

function addressOf(device: Device, seenBy: Device): string {
  return gidAddress(device.chooseGid(seenBy.chooseGid().gid).gid);
}
