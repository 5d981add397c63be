/** The client, the server, and both in one process. */
import { type Device, gidAddress } from '../../index.js';
import { memoryLinkOptions, openPublished } from '../device.js';
import type { Output } from '../output.js';
import { TcpChannel } from '../tcpchannel.js';
import { TcpListener } from '../tcplistener.js';
import { type Communication, Handshake, type RunTest } from './communication/handshake.js';
import { TEXT_KEYS } from './communication/keys.js';
import { connectByCm, connectOn, serveByCm, serveOn } from './communication/rdmacm.js';
import { connectByTcp, serveByTcp } from './communication/tcp.js';
import { measure, printResult, runWithTable } from './measure.js';
import { communicatesByCm, type PerftestOptions } from './parameters.js';
import { runSession, type TestResult } from './session.js';

export async function runClient(host: string, options: PerftestOptions, output: Output): Promise<void> {
  const runTest: RunTest = ({ device, handshake, peer }) => measure(device, handshake, options, output, peer);
  await (communicatesByCm(options) ? connectByCm : connectByTcp)(host, options, runTest);
}

export async function runServer(options: PerftestOptions, output: Output): Promise<void> {
  const runTest: RunTest = ({ device, handshake, peer }) => measure(device, handshake, options, output, peer);
  const onListening = (where: string) => output.note(`waiting for a client on ${where}`);
  await (communicatesByCm(options) ? serveByCm : serveByTcp)(options, onListening, runTest);
}

/** Client and server on the memory link, in one process. */
export async function runBoth(options: PerftestOptions, output: Output): Promise<void> {
  const [ofClient, ofServer] = memoryLinkOptions(options.open);
  await using device = await openPublished(ofClient);
  await using other = await openPublished(ofServer);
  const both = cooperating(options);
  // only the client is stopped: the server ends with its peer
  const { runInfinitely } = both;
  const serving = { ...both, ...(runInfinitely && { runInfinitely: { ...runInfinitely, onStop() {} } }) };
  const silent = { onConnected() {}, onInterval() {}, onBandwidth() {}, onLatency() {} };
  const results = {} as Record<Handshake['role'], TestResult>;
  const runClientTest: RunTest = async ({ handshake, peer }) => {
    results.client = await runWithTable(device, handshake, both, output, peer);
  };
  const runServerTest: RunTest = async ({ handshake, peer }) => {
    results.server = await runSession(other, handshake, serving, peer, silent, output);
  };
  await (communicatesByCm(options) ? runBothByCm : runBothByTcp)([device, other], both, runClientTest, runServerTest);
  const { client, server } = results;
  const [received, lost] = [client.received + server.received, client.lost + server.lost];
  printResult(device, 'client', both, output, { ...client, received, lost });
}

/** Options for two ends in one process: an end that spins would keep the other from posting its receives. */
function cooperating(options: PerftestOptions): PerftestOptions {
  const { transport, txDepth, rxDepth, postList } = options;
  // only RC retransmits a message that finds no receive
  const most = transport === 'RC' ? txDepth : Math.max(postList, Math.floor(rxDepth / 2));
  return { ...options, spinMs: 0, yieldMs: 0, txDepth: Math.min(txDepth, most) };
}

type DevicePair = readonly [Device, Device];

async function runBothByCm(
  [clientDevice, serverDevice]: DevicePair,
  options: PerftestOptions,
  runClientTest: RunTest,
  runServerTest: RunTest,
): Promise<void> {
  await using server = await serverDevice.listen({ port: options.port });
  await Promise.all([
    connectOn(clientDevice, addressOf(serverDevice, clientDevice), options, runClientTest),
    serveOn(serverDevice, server, options, runServerTest),
  ]);
}

/** The handshake uses TCP on loopback. */
async function runBothByTcp(
  [clientDevice, serverDevice]: DevicePair,
  options: PerftestOptions,
  runClientTest: RunTest,
  runServerTest: RunTest,
): Promise<void> {
  const listener = await TcpListener.open({ port: 0, host: '127.0.0.1' }, options.idleMs);
  const { port } = listener;
  const client = await TcpChannel.connect({ host: '127.0.0.1', port }, options.idleMs);
  const answering = await listener.accept();
  const communication = (device: Device, peer: Device, handshake: Handshake): Communication => ({
    ...{ device, handshake },
    peer: { address: addressOf(peer, device), port },
  });
  try {
    await Promise.all([
      runClientTest(communication(clientDevice, serverDevice, new Handshake(client, 'client', TEXT_KEYS))).finally(() =>
        client.close(),
      ),
      runServerTest(communication(serverDevice, clientDevice, new Handshake(answering, 'server', TEXT_KEYS))).finally(
        () => answering.close(),
      ),
    ]);
  } finally {
    listener.close();
  }
}

function addressOf(device: Device, seenBy: Device): string {
  return gidAddress(device.chooseGid(seenBy.chooseGid().gid).gid);
}
