// The DREQ that a connection prepares for the end of its process.
import { expect, test } from 'vitest';
import { isExitData } from '../../src/cm/core/exit.js';
import { createCmId } from '../../src/cm/index.js';
import { type Device, MemoryHub, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { Rig } from '../link/rig.js';
import { DevicePair, type SideWithId } from './devicepair.js';

/** Lets a device keep last frames. @returns the frames that are kept */
function keepFrames(device: Device): Set<Uint8Array> {
  const kept = new Set<Uint8Array>();
  const keepLastFrame = (frame: Uint8Array) => {
    kept.add(frame);
    return () => kept.delete(frame);
  };
  Object.assign(device.link, { keepLastFrame });
  return kept;
}

async function pairThatKeeps() {
  const pair = await DevicePair.forTest();
  return { pair, ofClient: keepFrames(pair.client.device), ofServer: keepFrames(pair.server.device) };
}

/** Waits for the next DISCONNECTED. */
async function disconnected({ id }: SideWithId) {
  for await (const event of id.channel) if (event.type === 'DISCONNECTED') return event;
  throw new Error('the id was closed');
}

test('each end of a connection keeps a DREQ while the connection is established', async () => {
  const { pair, ofClient, ofServer } = await pairThatKeeps();
  const { client, server } = await pair.connected();
  expect([ofClient.size, ofServer.size]).toEqual([1, 1]);
  const ended = disconnected(server);
  await client.id.disconnect();
  await ended;
  expect([ofClient.size, ofServer.size]).toEqual([0, 0]);
});

test.each(['client', 'server'] as const)('an id that is closed keeps no DREQ: %s', async (which) => {
  const { pair, ofClient, ofServer } = await pairThatKeeps();
  const connected = await pair.connected();
  connected[which].qp.close();
  await connected[which].id.close();
  expect(which === 'client' ? ofClient.size : ofServer.size).toBe(0);
});

test('an attempt to connect, a listener and a datagram service keep no DREQ', async () => {
  const { pair, ofClient, ofServer } = await pairThatKeeps();
  const listener = await pair.listen();
  const { id } = await pair.resolved();
  const connecting = id.connect();
  const request = await listener.getRequest();
  expect([ofClient.size, ofServer.size]).toEqual([0, 0]);
  await request.reject();
  await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  const service = createCmId(pair.server.device, { space: 'UDP' });
  await service.bindAddr('::', 7480);
  await service.listen();
  expect([ofClient.size, ofServer.size]).toEqual([0, 0]);
});

test('the kept frame is a whole DREQ, after which the peer knows that the process has ended', async () => {
  const hub = new MemoryHub();
  const open = (seed: number) => openDevice({ link: 'memory', hub, seed, memoryBytes: 24 * 2 ** 20 });
  await using a = await open(1);
  await using b = await open(2);
  const kept = keepFrames(a);
  const listener = await b.listen({ port: 7471 });
  const connecting = a.connect({ port: 7471, host: b.gids[0]?.address as string });
  const served = await (await listener.next())?.accept();
  const client = await connecting;
  // the link sends them when the process is over
  const rig = new Rig(memoryLink(hub, { addresses: ['10.0.0.9'] }));
  rig.put(...kept);
  rig.link.send(0);
  expect(await served?.receive()).toBeUndefined();
  await client.close();
});

test('a peer that disconnects is not taken for a process that has ended', async () => {
  const { pair } = await pairThatKeeps();
  const { client, server } = await pair.connected();
  const ended = disconnected(server);
  await client.id.disconnect();
  expect((await ended).hasExited).toBeUndefined();
});

test.each([
  ['process ended', true],
  ['process ended\0\0\0', true],
  ['process ended!', false],
  ['process ende', false],
  ['', false],
] as const)('private data tells the end of a process: %j', (text, isExit) => {
  expect(isExitData(Buffer.from(text))).toBe(isExit);
});
