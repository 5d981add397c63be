// The channels of node:diagnostics_channel.
import diagnosticsChannel from 'node:diagnostics_channel';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Device, MemoryHub, type Qp } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { openOn } from '../../verbs/pair.js';

const PORT = 7471;
const NAMES = ['device.open', 'device.close', 'connection.open', 'connection.refuse', 'connection.close'];

interface Message {
  readonly device: Device;
  readonly side?: 'client' | 'server';
  readonly local?: { readonly address: string; readonly port: number };
  readonly remote?: { readonly address: string; readonly port: number };
  readonly qp?: Qp;
  readonly endedBy?: string;
  readonly error?: Error;
}

let heard: [string, Message][] = [];
const listeners = NAMES.map((name) => [name, (message: unknown) => heard.push([name, message as Message])] as const);
beforeEach(() => {
  heard = [];
  for (const [name, listener] of listeners) diagnosticsChannel.subscribe(`wasm-roce:${name}`, listener);
});
afterEach(unsubscribe);

function unsubscribe(): void {
  for (const [name, listener] of listeners) diagnosticsChannel.unsubscribe(`wasm-roce:${name}`, listener);
}

/** The messages since the last call, with what tells them apart, in any order. */
const took = () =>
  heard
    .splice(0)
    .map(([name, { side, endedBy }]) => [name, side, endedBy].filter((part) => part !== undefined).join(' '));

async function pair() {
  const hub = new MemoryHub();
  const [a, b] = [await openOn(hub), await openOn(hub, { seed: 2 })];
  return { a, b, host: b.gids[0]?.address as string };
}

async function connected(a: Device, b: Device, host: string) {
  const server = await b.listen({ port: PORT });
  const connecting = a.connect({ host, port: PORT });
  const served = await (await server.next())?.accept();
  const client = await connecting;
  await eventually(() => expect(heard.length).toBe(2));
  return { server, served, client };
}

test('devices report that they open and close, each once', async () => {
  const { a, b } = await pair();
  expect([took(), a.isClosed]).toEqual([['device.open', 'device.open'], false]);
  await a.close();
  await eventually(() => expect(took()).toEqual(['device.close']));
  await b.close();
  await b.close();
  await eventually(() => expect(took()).toEqual(['device.close']));
});

test('both ends of a connection report its opening with their addresses, and the end that has closed it', async () => {
  const { a, b, host } = await pair();
  took();
  const { client, served } = await connected(a, b, host);
  const ofClient = heard.find(([, { side }]) => side === 'client')?.[1];
  expect([ofClient?.device === a, ofClient?.remote, ofClient?.qp?.qpNum]).toEqual([
    true,
    { address: host, port: PORT },
    client.qp.qpNum,
  ]);
  expect(ofClient?.local?.address).toBe(a.gids[0]?.address);
  expect(took().sort()).toEqual(['connection.open client', 'connection.open server']);
  await served?.close();
  await client.close();
  await eventually(() => expect(heard.length).toBe(2));
  expect(took().sort()).toEqual(['connection.close client peer', 'connection.close server local']);
  for (const device of [a, b]) await device.close({ force: true });
});

test('connections of a device that is closed by force end by this end', async () => {
  const { a, b, host } = await pair();
  took();
  await connected(a, b, host);
  took();
  await a.close({ force: true });
  await eventually(() => expect(heard.length).toBe(3));
  expect(took().sort()).toEqual(['connection.close client local', 'connection.close server peer', 'device.close']);
  await b.close({ force: true });
});

test('both ends report a refusal with its reason, and a missing listener at the client alone', async () => {
  const { a, b, host } = await pair();
  took();
  await b.listen({ port: PORT + 1 });
  await expect(a.connect({ host, port: PORT })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(heard[0]?.[1].error).toMatchObject({ reason: 'INVALID_SERVICE_ID' });
  expect(took()).toEqual(['connection.refuse client']);
  const server = await b.listen({ port: PORT });
  const connecting = a.connect({ host, port: PORT });
  await (await server.next())?.reject();
  await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(took().sort()).toEqual(['connection.refuse client', 'connection.refuse server']);
  for (const device of [a, b]) await device.close({ force: true });
});

test('nobody hears of what happens without a subscription', async () => {
  unsubscribe();
  const { a, b, host } = await pair();
  const server = await b.listen({ port: PORT });
  const connecting = a.connect({ host, port: PORT });
  await (await server.next())?.accept();
  await (await connecting).close();
  for (const device of [a, b]) await device.close({ force: true });
  expect(heard).toEqual([]);
});
