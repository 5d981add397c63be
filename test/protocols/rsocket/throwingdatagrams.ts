/** A program whose listeners throw, over node:dgram or wasm-roce/dgram, as its argument says. It prints what it saw. */
import * as nodeDgram from 'node:dgram';
import { setTimeout as sleep } from 'node:timers/promises';
import * as ourDgram from '../../../src/dgram.js';
import { createMemoryHub, openDevice } from '../../../src/index.js';

const isNode = process.argv[2] === 'node:dgram';
const [OWN, PEER] = ['127.0.0.1', '127.0.0.2'] as const;
const hub = createMemoryHub();
const [device, peer] = await Promise.all(
  [OWN, PEER].map((address) => openDevice({ hub, addresses: [address], memoryBytes: 2 ** 23 })),
);
const dgram = (isNode ? nodeDgram : ourDgram) as typeof nodeDgram;
const [near, far]: object[] = isNode ? [{}, {}] : [{ device }, { device: peer }];

const log: string[] = [];
let name = '';
process.on('uncaughtException', (error, origin) => log.push(`${name}: ${origin} ${error.message}`));

/** Throws in a listener of one event or in a callback, and tells whether the echo still works. */
async function program(event: string, isBound = true): Promise<void> {
  name = isBound ? event : `${event} of the first message`;
  const bug = () => {
    throw new Error('bug');
  };
  const server = dgram.createSocket({ type: 'udp4', ...far });
  server.on('message', (message, { address, port }) => server.send(message, port, address));
  await new Promise<void>((resolve) => server.bind(0, PEER, resolve));
  const client = dgram.createSocket({ type: 'udp4', ...near });
  client.on('error', (error) => log.push(`${name}: error ${error.message}`));
  client.once(event, bug);
  let got = '';
  client.on('message', (message) => (got += message));
  if (isBound) client.bind(0, OWN);
  await sleep(10);
  client.connect(server.address().port, PEER);
  await sleep(10);
  for (const text of ['one ', 'two ', 'three ']) {
    client.send(text, event === 'callback of send' && text === 'one ' ? bug : undefined);
    await sleep(20);
  }
  client.close();
  await new Promise<void>((resolve) => server.close(resolve));
  log.push(`${name}: ${got}`);
}

for (const event of ['listening', 'connect', 'message', 'close', 'callback of send']) await program(event);
// a socket of node:dgram never closes after this
if (!isNode) await program('listening', false);
process.stdout.write(JSON.stringify(log));
process.exit();
