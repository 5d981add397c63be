/** A program whose listeners throw, over node:net or wasm-roce/net, as its argument says. It prints what it saw. */
import * as nodeNet from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createMemoryHub, openDevice } from '../../../src/index.js';
import * as ourNet from '../../../src/net.js';
import { HOST, OWN_HOST } from '../hosts.js';

const isNode = process.argv[2] === 'node:net';
const hub = createMemoryHub();
const [device, peer] = await Promise.all(
  [OWN_HOST, HOST].map((address) => openDevice({ hub, addresses: [address], ...(isNode && { memoryBytes: 2 ** 23 }) })),
);
const net = (isNode ? nodeNet : ourNet) as typeof nodeNet;
const [near, far]: object[] = isNode ? [{}, {}] : [{ device }, { device: peer }];
const host = isNode ? '127.0.0.1' : HOST;

const log: string[] = [];
let name = '';
process.on('uncaughtException', (error, origin) => log.push(`${name}: ${origin} ${error.message}`));

/** Throws in a listener of one event, and tells whether the echo still works. */
async function program(event: string, end: 'client' | 'server' | 'listener'): Promise<void> {
  name = `${end} ${event}`;
  const bug = () => {
    throw new Error('bug');
  };
  const accepted: nodeNet.Socket[] = [];
  const server = net.createServer(far, (socket) => {
    accepted.push(socket);
    socket.on('error', (error) => log.push(`${name}: server error ${error.message}`));
    if (end === 'server') socket.once(event, bug);
    socket.pipe(socket);
  });
  if (end === 'listener') server.once(event, bug);
  server.listen(0, host);
  while (server.address() === null) await sleep(1);
  const { port } = server.address() as nodeNet.AddressInfo;
  const lookup = (_: string, __: object, done: (error: null, found: object[]) => void) =>
    process.nextTick(done, null, [{ address: host, family: 4 }]);
  const socket = net.connect({ port, host: 'name', lookup, ...near } as nodeNet.TcpNetConnectOpts);
  if (end === 'client') socket.once(event, bug);
  socket.on('error', (error) => log.push(`${name}: client error ${error.message}`));
  if (event === 'timeout') {
    socket.setTimeout(10);
    await sleep(30);
  }
  let got = '';
  socket.on('data', (data) => (got += data));
  socket.end('hello');
  await Promise.race([new Promise((resolve) => socket.once('close', resolve)), sleep(1000)]);
  await sleep(10);
  log.push(`${name}: ${got}, closed ${socket.closed}`);
  for (const one of [socket, ...accepted]) one.destroy();
  await Promise.race([new Promise((resolve) => server.close(resolve)), sleep(100)]);
  // on a busy machine the listener that throws is called later, and its line comes after those above
  const hasThrown = () => log.some((line) => line.startsWith(`${name}: uncaughtException`));
  for (let wait = 0; wait < 500 && !hasThrown(); wait++) await sleep(10);
}

for (const event of ['lookup', 'connect', 'ready', 'data', 'end', 'finish', 'timeout', 'close'])
  await program(event, 'client');
for (const event of ['data', 'end', 'finish', 'close']) await program(event, 'server');
for (const event of ['listening', 'connection', 'close']) await program(event, 'listener');
process.stdout.write(JSON.stringify(log.sort()));
process.exit();
