// A server in a process of its own, whose clients do what no client should: it stays alive, and serves the next one.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ConnectParameters } from '../../../src/cm/core/active.js';
import { MadAgent } from '../../../src/cm/madagent.js';
import { createCmId, type Device, openDevice } from '../../../src/index.js';
import { loopback } from '../../verbs/pair.js';

const PORT = 7471;
const children: ChildProcess[] = [];
const devices: Device[] = [];
const addressOf = () => loopback().addresses[0] as string;
const host = addressOf();
let server: ReturnType<typeof run>;

/** Starts a program of this folder. */
function run(program: string, ...args: string[]) {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'programs', program), ...args]);
  children.push(child);
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text) => {
      said[name] += text;
    });
  const says = async (line: string, times = 1) => {
    const until = performance.now() + 25_000;
    while (said.stdout.split('\n').filter((other) => other === line).length < times) {
      if (performance.now() > until) throw new Error(`not said: ${line}; but ${said.stdout} ${said.stderr}`);
      await sleep(10);
    }
  };
  // Listened for from the beginning: a client may end before the test kills it.
  return { child, said, says, exited: once(child, 'exit') };
}

async function client(): Promise<Device> {
  const device = await openDevice({ ...loopback(), memoryBytes: 2 ** 26 });
  devices.push(device);
  return device;
}

beforeAll(async () => {
  server = run('server.mjs', host);
  await server.says('listening');
});

afterAll(async () => {
  for (const device of devices) await device.close({ force: true });
  for (const child of children) child.kill('SIGKILL');
});

async function expectServed(): Promise<void> {
  await using device = await openDevice(loopback());
  // A flood may leave the server without memory for a second.
  const connect = () => device.connect({ host, port: PORT, timeout: 5000 }).catch(() => undefined);
  let connection = await connect();
  for (let tries = 0; connection === undefined && tries < 20; tries++) {
    await sleep(250);
    connection = await connect();
  }
  await connection?.send(Buffer.from('hello'));
  expect((await connection?.receive({ timeout: 20_000 }))?.data.toString()).toBe('hello');
  expect({ code: server.child.exitCode, stderr: server.said.stderr }).toEqual({ code: null, stderr: '' });
}

test.each(['connecting', 'connected', 'sending', 'streaming'])('a client that is killed when %s', async (step) => {
  const { child, says, exited } = run('client.mjs', addressOf(), host, step);
  await says(step);
  child.kill('SIGKILL');
  await exited;
  await expectServed();
});

// Those that were connected and sending. The stream has ended by itself, as the server does not speak its protocol.
test('connections of killed clients are found and ended', async () => {
  await server.says('ETIMEDOUT', 2);
  await expectServed();
});

test('a message that is too long, right after connecting', async () => {
  const device = await client();
  const id = createCmId(device);
  const [pd, cq] = [await device.allocPd(), await device.createCq()];
  const mr = await pd.regMr(20_000);
  await id.resolveAddr(host, PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq });
  await id.connect();
  qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 20_000) });
  expect((await cq.next()).ok).toBe(false);
  await server.says('LOC_LEN_ERR');
  await expectServed();
});

test('private data without meaning', async () => {
  const device = await client();
  for (let i = 0; i < 20; i++) {
    const connection = await device.connect({ host, port: PORT, privateData: randomBytes(56) });
    await connection.close();
  }
  await expectServed();
});

test('ten thousand requests without RTU', async () => {
  const device = await client();
  const agent = await MadAgent.of(device);
  const source = { address: device.gids[0]?.address as string, port: 40_000 };
  const parameters: Omit<ConnectParameters, 'qpNum'> = {
    ...{ space: 'TCP', transport: 'RC', source, destination: { address: host, port: PORT }, startingPsn: 0 },
    ...{ responderResources: 1, initiatorDepth: 1, retryCnt: 7, rnrRetry: 7, flowControl: false, srq: false },
    ...{ pathMtu: 1024, hopLimit: 1, trafficClass: 0, sl: 0, packetLifeTime: 16, privateData: randomBytes(20) },
  };
  for (let qpNum = 2; qpNum < 10_002; qpNum++) {
    agent.callCore((core, now) => core.connect({ ...parameters, qpNum }, now));
    if (qpNum % 50 === 0) await new Promise(setImmediate);
  }
  // The client vanishes; nothing of what the server keeps for it is taken back.
  await device.close({ force: true });
  await expectServed();
}, 120_000);

test('the server closes in order at last, although clients are still connected', async () => {
  await (await client()).connect({ host, port: PORT });
  server.child.kill('SIGTERM');
  expect(await server.exited).toEqual([0, null]);
  expect(server.said.stdout).toContain('closed');
}, 120_000);
