// The end of a process, or of a thread, ends its connections.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Connection, type Device, openDevice } from '../../src/index.js';
import { createServer, type Socket } from '../../src/net.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { addToLoopback, removeFromLoopback, sh, vethPair } from '../link/netns.js';
import { type ExitingOptions, WAYS, type Way } from './exitways.js';
import '../link/ownsockets.js';

const PROGRAM = join(import.meta.dirname, 'exitingclient.ts');
/** Connections of a client by each of the two servers. */
const COUNT = 5;

let devices: Device[] = [];
let children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  for (const device of devices) await device.close({ force: true });
  [devices, children] = [[], []];
});

/** Servers whose connections echo. `ends` has the ends of all: `end`, or the code of the error. */
async function serve(link: ExitingOptions['link'], address: string) {
  const device = await openDevice({ link, addresses: [address], keepAlive: true });
  devices.push(device);
  const ends: string[] = [];
  let count = 0;
  const netServer = createServer({ device }, (socket: Socket) => {
    count++;
    socket.on('error', ({ code }: NodeJS.ErrnoException) => ends.push(`${code}`));
    socket.on('end', () => ends.push('end')).pipe(socket);
  });
  netServer.listen(0, address);
  await once(netServer, 'listening');
  const messageServer = await device.listen({ port: 0 });
  messageServer.on('connection', async (connection: Connection) => {
    // the pool of receives, which is kept, grows when the peer is ready
    await connection.send(Buffer.from('hello'));
    count++;
    connection.receive().then(
      async (message) => {
        ends.push(message === undefined ? 'end' : 'message');
        await connection.close();
      },
      ({ code }) => ends.push(code),
    );
  });
  const netPort = (netServer.address() as AddressInfo).port;
  return { device, ends, count: () => count, ports: { netPort, messagePort: messageServer.address.port } };
}

/** Runs a client to its end. @returns its exit status or signal, and the signals that it listened to */
async function runClient(options: ExitingOptions, isReady: () => void) {
  const words = ['--import', 'tsx', PROGRAM, JSON.stringify(options)];
  const child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'ignore'] });
  children.push(child);
  const [line] = await once(child.stdout as NodeJS.EventEmitter, 'data');
  await eventually(isReady);
  const exit = once(child, 'exit');
  child.stdin?.end('end\n');
  const [code, signal] = await exit;
  return { listened: JSON.parse(line), ended: signal === null ? { code } : { signal } };
}

test('connections end in order with their process, in whatever way it ends, and leave no memory behind', async () => {
  const [host, address] = ['127.0.0.1', '127.0.0.2'];
  const { device, ends, count, ports } = await serve('udp', host);
  const left: number[] = [];
  let clients = 0;
  for (const way of Object.keys(WAYS) as Way[]) {
    clients++;
    const options: ExitingOptions = { link: 'udp', mode: 'inline', address, host, ...ports, count: COUNT, way };
    const { listened, ended } = await runClient(options, () => expect(count()).toBe(clients * 2 * COUNT));
    expect([way, listened, ended]).toEqual([way, [], WAYS[way]]);
    await eventually(() => expect([way, ...ends]).toEqual([way, ...Array(clients * 2 * COUNT).fill('end')]));
    await eventually(() => expect(device.query().memoryAvailable).toBeGreaterThanOrEqual(left[0] ?? 0));
    left.push(device.query().memoryAvailable);
  }
});

/** A client that is ended by a signal. */
async function endsBySignal(
  link: ExitingOptions['link'],
  [host, address]: readonly [string, string],
  mode: ExitingOptions['mode'] = 'inline',
) {
  const { ends, count, ports } = await serve(link, host);
  const options: ExitingOptions = { link, mode, address, host, ...ports, count: 1, way: 'SIGTERM' };
  await runClient(options, () => expect(count()).toBe(2));
  await eventually(() => expect(ends).toEqual(['end', 'end']));
}

test('a signal ends the connections of a process: mode worker', () =>
  endsBySignal('udp', ['127.0.0.1', '127.0.0.2'], 'worker'));

describeIf(programPrivilege('ip'), 'an IPv6 address of the loopback interface', () => {
  beforeAll(() => addToLoopback(['fd00:77::1/128', 'fd00:77::2/128']));
  afterAll(() => removeFromLoopback(['fd00:77::1/128', 'fd00:77::2/128']));

  test('a signal ends the connections of a process: the udp link with IPv6', () =>
    endsBySignal('udp', ['fd00:77::1', 'fd00:77::2']));
});

describeIf(all(xdpPrivilege(), programPrivilege('ip')), 'a veth pair', () => {
  beforeAll(() => vethPair(['lex0', 'lex1'], 177, 1500));
  afterAll(() => void sh('ip link del lex0'));

  test.each([
    ['packet', ['10.177.0.1', '10.177.0.2']],
    ['packet', ['fd00:177::1', 'fd00:177::2']],
    ['xdp', ['10.177.0.1', '10.177.0.2']],
    ['xdp', ['fd00:177::1', 'fd00:177::2']],
  ] as const)('a signal ends the connections of a process: the %s link, %s', (link, addresses) =>
    endsBySignal(link, addresses),
  );
});
