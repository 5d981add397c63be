// Streams: all bytes in order whatever the chunks, backpressure by credits, half-close, all kinds of ends.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Duplex, Readable, Transform, Writable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Connection } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { connectionPair, uncaughtDuring } from './connectionpair.js';

const small = { messageBytes: 512, receives: 8, sends: 3 };

/** Returns the hash of all bytes read. Unlike `for await`, it does not destroy the stream's writable side. */
async function digest(source: Readable): Promise<string> {
  const hash = createHash('sha256');
  source.on('data', (chunk) => hash.update(chunk));
  await once(source, 'end');
  return hash.digest('hex');
}

test.each([
  ['pieces as they are', {}],
  ['small messages, few receives', small],
])('a megabyte in pieces of all sizes arrives, both ways at once: %s', async (_, options) => {
  await using ends = await connectionPair({ a: options, b: options });
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const pieces = Array.from({ length: 200 }, (_, i) => randomBytes((i * 7919) % 10_000));
  const wanted = createHash('sha256').update(Buffer.concat(pieces)).digest('hex');
  const [atA, atB] = await Promise.all([
    digest(a),
    digest(b),
    pipeline(Readable.from(pieces), a, { end: true }),
    pipeline(Readable.from(pieces), b, { end: true }),
  ]);
  expect([atA, atB]).toEqual([wanted, wanted]);
});

test('a writer waits for a reader that stops, and no message is refused', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const closed = Promise.all([once(a, 'close'), once(b, 'close')]);
  const data = randomBytes(100_000);
  a.end(data);
  b.end();
  await sleep(50);
  expect(a.writableFinished).toBe(false);
  const refused = () => ends.devices[1].counters().send_rnr_err;
  expect(refused()).toBe(0);
  a.resume();
  const chunks: Buffer[] = [];
  for await (const chunk of b) chunks.push(chunk);
  expect(Buffer.concat(chunks).equals(data)).toBe(true);
  expect(refused()).toBe(0);
  await closed;
});

test('a stream goes on when the requests that have all slots are done', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream().on('error', () => {}), ends.b.stream().on('error', () => {})];
  const mr = await ends.b.share(64);
  let heard = '';
  b.on('data', (chunk) => {
    heard += chunk;
  });
  a.write('hello ');
  await eventually(() => expect(heard).toBe('hello '));
  const writes = Array.from({ length: small.sends }, () => ends.a.write(mr.remote, Buffer.alloc(8)));
  let isSent = false;
  a.write('world', () => {
    isSent = true;
  });
  expect(isSent).toBe(false);
  await Promise.all(writes);
  await eventually(() => expect([heard, isSent]).toEqual(['hello world', true]));
});

test('a stream gets its turn among requests that use every slot, and keeps its order', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream().on('error', () => {}), ends.b.stream().on('error', () => {})];
  const mr = await ends.b.share(64);
  const data = randomBytes(20_000);
  let isDone = false;
  const others = Array.from({ length: 2 * small.sends }, async () => {
    while (!isDone) await ends.a.write(mr.remote, Buffer.alloc(8));
  });
  const heard: Buffer[] = [];
  b.on('data', (chunk) => heard.push(chunk));
  a.write(data);
  try {
    await eventually(() => expect(Buffer.concat(heard).equals(data)).toBe(true));
  } finally {
    isDone = true;
    await Promise.all(others);
  }
});

test('an echo may answer after the other end has ended its direction', async () => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const shout = new Transform({ transform: (chunk, _, done) => done(null, chunk.toString().toUpperCase()) });
  const serving = pipeline(b, shout, b);
  a.end('echo');
  let heard = '';
  for await (const chunk of a) heard += chunk;
  expect(heard).toBe('ECHO');
  await serving;
});

test('the connections close without an error when both directions have ended', async () => {
  const ends = await connectionPair();
  const closed = [ends.a, ends.b].map((end) => new Promise<unknown>((done) => end.once('close', done)));
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  a.end('x');
  b.end('y');
  a.resume();
  b.resume();
  expect(await Promise.all(closed)).toEqual([undefined, undefined]);
  await ends[Symbol.asyncDispose]();
});

test('lost last acknowledgements, and a peer that is gone, are no error when nothing is missing', async () => {
  for (let seed = 1; seed <= 30; seed++) {
    const ends = await connectionPair({ open: { fault: { seed, both: { drop: 0.1 } } } });
    const streams = [ends.a.stream(), ends.b.stream()];
    const errors: Error[] = [];
    for (const stream of streams)
      stream
        .on('error', (error) => errors.push(error))
        .resume()
        .end('some words');
    await Promise.all(streams.map((stream) => new Promise((done) => stream.once('close', done))));
    expect({ seed, errors, whole: streams.map((stream) => stream.readableEnded) }).toEqual({
      ...{ seed, errors: [], whole: [true, true] },
    });
    await ends[Symbol.asyncDispose]();
  }
});

test('messages that came before the stream was made belong to it', async () => {
  await using ends = await connectionPair();
  const a = ends.a.stream();
  a.end('early');
  await sleep(20);
  const b = ends.b.stream();
  const closed = Promise.all([a, b].map((stream) => new Promise((done) => stream.once('close', done))));
  b.end();
  a.resume();
  let heard = '';
  for await (const chunk of b) heard += chunk;
  expect(heard).toBe('early');
  await closed;
});

test('a connection that closes in the middle is an error for the peer, and a premature end here, as with a socket', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const writing = pipeline(Readable.from([randomBytes(50_000)]), a);
  // its buffer takes one piece: by default it may take all at once, and there is no middle
  const slow = new Writable({ highWaterMark: 1, write: (_chunk, _encoding, done) => void setTimeout(done, 5) });
  const reading = pipeline(b, slow);
  setTimeout(() => ends.b.destroy(), 20);
  expect(await Promise.allSettled([writing, reading])).toMatchObject([
    { status: 'rejected', reason: { code: 'ECONNRESET' } },
    { status: 'rejected', reason: { code: 'ERR_STREAM_PREMATURE_CLOSE' } },
  ]);
});

test('close of the connection ends a stream with unsent data, and loses no earlier request', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream(), ends.b.stream().on('error', () => {})];
  const mr = await ends.b.share(64);
  const forever = function* () {
    for (;;) yield Buffer.alloc(4096);
  };
  const writing = pipeline(Readable.from(forever()), a).catch((error) => error);
  b.resume();
  await once(b, 'data');
  const before = Array.from({ length: 10 }, () => ends.a.fetchAdd(mr.remote, 1n));
  const closing = [ends.a.close(), ends.a.close()];
  await expect(ends.a.fetchAdd(mr.remote, 1n)).rejects.toMatchObject({ code: 'ECONNRESET' });
  expect(ends.a.isOpen).toBe(false);
  const late = sleep(3000, 'still open', { ref: false });
  expect(await Promise.race([Promise.all(closing).then(() => 'closed'), late])).toBe('closed');
  expect(await writing).toMatchObject({ code: 'ECONNRESET' });
  expect(await Promise.all(before)).toEqual(Array.from({ length: 10 }, (_, i) => BigInt(i)));
});

test.each([
  ['as it comes', 0],
  ['that has waited', 20],
])('an exception of a reader loses no data, and no credit of the writer: data %s', async (_, late) => {
  await using ends = await connectionPair({ a: small, b: { ...small, receives: 15 } });
  const [a, b] = [ends.a.stream().on('error', () => {}), ends.b.stream().on('error', () => {})];
  const data = randomBytes(20_000);
  const heard: Buffer[] = [];
  const uncaught = await uncaughtDuring(async () => {
    if (late > 0) a.write(data);
    await sleep(late);
    b.on('data', (chunk) => {
      heard.push(chunk);
      throw new Error('enough');
    });
    if (late === 0) a.write(data);
    await eventually(() => expect(Buffer.concat(heard).equals(data)).toBe(true));
  });
  expect(uncaught).toHaveLength(heard.length);
});

test('a reader that destroys the stream gets no more of it', async () => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream().on('error', () => {}), ends.b.stream()];
  for (let i = 0; i < 5; i++) a.write(`${i}`);
  // Messages wait in their receive buffers and are delivered together.
  await sleep(20);
  let count = 0;
  b.on('data', () => {
    count++;
    b.destroy();
  });
  await once(b, 'close');
  await sleep(5);
  expect(count).toBe(1);
});

test('a peer that ends its direction and leaves before it has everything is an error', async () => {
  await using ends = await connectionPair({ a: small, b: small });
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const failed = new Promise<Error>((done) => a.once('error', done));
  a.write(randomBytes(50_000));
  b.end('all that I say');
  for await (const _chunk of a.iterator({ destroyOnReturn: false })) break;
  b.destroy();
  expect(await failed).toMatchObject({ code: 'ECONNRESET' });
});

test.each([
  [
    'closes its connection',
    (end: Connection, stream: Duplex) => finished(stream, { readable: false }).then(() => end.close()),
  ],
  [
    'destroys its stream',
    (_: Connection, stream: Duplex) => finished(stream, { readable: false }).then(() => void stream.destroy()),
  ],
])('a peer that ends its stream and then %s is no error', async (_, leave) => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const errors: Error[] = [];
  for (const stream of [a, b]) stream.on('error', (error) => errors.push(error));
  const closed = Promise.all([once(a, 'close'), once(b, 'close')]);
  b.write('answered');
  await once(a, 'data');
  a.end('all that I say');
  await leave(ends.a, a);
  let heard = '';
  b.on('data', (chunk) => {
    heard += chunk;
  });
  await closed;
  expect([heard, errors]).toEqual(['all that I say', []]);
});

/** Whether `for await` destroys a Duplex that it has read to the end. Node 24 leaves its other direction open. */
async function forAwaitDestroys(): Promise<boolean> {
  const duplex = Duplex.from({ readable: Readable.from([]), writable: new Writable() }).on('error', () => {});
  for await (const _ of duplex);
  return duplex.destroyed;
}

test('reading to the end with `for await` ends the other direction too, as with a socket of Node.js', async () => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const heard = ['', ''];
  const read = async (stream: Duplex, at: number) => {
    for await (const chunk of stream) heard[at] += chunk;
  };
  b.write('hello');
  a.end('and goodbye');
  const reading = read(a, 0);
  await read(b, 1);
  expect(b.destroyed).toBe(await forAwaitDestroys());
  if (!b.destroyed) b.end();
  await reading;
  expect(heard).toEqual(['hello', 'and goodbye']);
});

test('writing after the peer has left is refused', async () => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const failed = new Promise<Error>((done) => b.once('error', done));
  a.destroy();
  await new Promise((done) => b.once('close', done));
  const error = await new Promise((done) => b.write('too late', done));
  expect([error, await failed]).toMatchObject([{ code: 'ERR_STREAM_DESTROYED' }, { code: 'ECONNRESET' }]);
});

test('destroying the stream ends the connection', async () => {
  await using ends = await connectionPair();
  const [a, b] = [ends.a.stream(), ends.b.stream()];
  const failed = new Promise<Error>((done) => b.once('error', done));
  a.destroy();
  expect(await failed).toMatchObject({ code: 'ECONNRESET' });
});

test('a peer without a stream is detected', async () => {
  await using ends = await connectionPair();
  const a = ends.a.stream();
  const failed = new Promise<Error>((done) => a.once('error', done));
  await ends.b.send(Buffer.from('a message')).catch(() => {});
  expect((await failed).message).toContain('no stream message');
  expect(() => ends.a.stream()).toThrow('EBUSY');
});
