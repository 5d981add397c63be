// Clients that connect while a server is busy.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TcpListener } from '../../src/cli/tcplistener.js';

const HOST = '127.0.0.1';

let listener: TcpListener;
const clients: Socket[] = [];
beforeEach(async () => {
  listener = await TcpListener.open({ port: 0, host: HOST }, 10_000);
});
afterEach(() => {
  listener.close();
  for (const client of clients.splice(0)) client.destroy();
});

/** Connects and sends a word. */
async function client(word: string): Promise<Socket> {
  const socket = connect({ port: listener.port, host: HOST }).on('error', () => {});
  clients.push(socket);
  await once(socket, 'connect');
  socket.write(word);
  return socket;
}

/** Turns of the event loop in which the listener sees what has arrived on loopback. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

test('wait in order, and none of their data is lost', async () => {
  for (const word of ['one', 'two']) await client(word);
  for (const word of ['one', 'two']) {
    const channel = await listener.accept();
    expect((await channel.read(3, 'the word')).toString()).toBe(word);
    channel.close();
  }
});

test('that have left are not served, however they left', async () => {
  const [polite, rude] = [await client('one'), await client('two')];
  await client('six');
  polite.end();
  rude.resetAndDestroy();
  await Promise.all([once(polite, 'finish'), once(rude, 'close')]);
  await turns();
  const channel = await listener.accept();
  expect((await channel.read(3, 'the word')).toString()).toBe('six');
  channel.close();
});

test('are closed when the server no longer listens', async () => {
  const waiting = await client('one');
  await turns();
  listener.close();
  await once(waiting.resume(), 'close');
});
