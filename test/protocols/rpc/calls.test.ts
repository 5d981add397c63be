// Calls and streams between a client and a server of this project, in virtual time.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type CallContext, connect, createServer, type RpcClient, RpcError, type RpcServer } from '../../../src/rpc.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

/** Lengths that go by SEND and by READ. */
const LENGTHS = [0, 1, 64, 8192, 65_536, 65_537, 300_000, 4 * 2 ** 20];

let server: RpcServer;
let client: RpcClient;
/** Contexts of the calls of `wait`, which never answers by itself. */
let waiting: CallContext[];
let faults: string[];

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

beforeEach(async () => {
  waiting = [];
  faults = [];
  server = await createServer({
    device: peer,
    maxCalls: 100,
    methods: {
      echo: (request) => request,
      length: (request) => Buffer.from(String(request.length)),
      async later(request) {
        await pause(Number(request.toString()));
        return request;
      },
      wait: (_, context) => {
        waiting.push(context);
        return new Promise((_resolve, reject) => {
          context.signal.addEventListener('abort', () => reject(context.signal.reason));
        });
      },
      fail: () => {
        throw new RpcError('NOT_FOUND', 'there is no such thing');
      },
      break: () => Promise.reject(new Error('broken')),
      wrong: () => 'text' as never,
      large: () => Buffer.alloc(5 * 2 ** 20),
    },
    streams: {
      async echo(stream) {
        for await (const message of stream) await stream.write(message);
      },
      async count(stream) {
        const first = await stream.read();
        for (let i = 0; i < Number(first?.toString()); i++) await stream.write(Buffer.from(String(i)));
      },
      async sum(stream) {
        let sum = 0;
        for await (const message of stream) sum += message.length;
        await stream.write(Buffer.from(String(sum)));
      },
      async fail(stream) {
        await stream.write(Buffer.from('first'));
        throw new RpcError('ABORTED', 'enough');
      },
      async wait(stream, context) {
        waiting.push(context);
        await stream.read();
      },
      async slow(stream) {
        for (;;) {
          await pause(100);
          if ((await stream.read()) === undefined) return;
        }
      },
      ignore: () => {},
    },
    onError: ({ message }) => faults.push(message),
  });
  client = await connect({ device, host: HOST });
});

afterEach(async () => {
  await client.close();
  await server.close();
  expect(faults).toEqual([]);
  // nothing is left: no memory of a message, no connection
  for (const each of [device, peer]) await eventually(() => each.close());
});

test.each(LENGTHS)('a request and a response of %i bytes arrive', async (length) => {
  const request = Buffer.from(new Random(length).bytes(length));
  expect((await client.call('echo', request)).equals(request)).toBe(true);
});

test('calls overlap, and each gets its own response', async () => {
  const random = new Random(1);
  await using many = await connect({ device, host: HOST, maxCalls: 100 });
  const requests = Array.from({ length: 500 }, () => Buffer.from(random.bytes(random.below(20_000))));
  const responses = await Promise.all(
    requests.map((request, i) => many.call(i % 5 === 0 ? 'length' : 'echo', request)),
  );
  for (const [i, response] of responses.entries()) {
    const request = requests[i] as Buffer;
    if (i % 5 === 0) expect(response.toString()).toBe(String(request.length));
    else expect(response.equals(request)).toBe(true);
  }
});

test('a short call does not wait for a long one', async () => {
  const order: string[] = [];
  const slow = client.call('later', Buffer.from('1000')).then(() => order.push('slow'));
  const fast = client.call('later', Buffer.from('1')).then(() => order.push('fast'));
  await Promise.all([slow, fast]);
  expect(order).toEqual(['fast', 'slow']);
});

test.each([
  ['fail', 'NOT_FOUND: there is no such thing', 'NOT_FOUND'],
  ['break', 'INTERNAL: broken', 'INTERNAL'],
  ['wrong', "INTERNAL: the response of wrong is 'text', must be a Uint8Array", 'INTERNAL'],
  ['large', 'RESOURCE_EXHAUSTED: the message has 5242880 bytes, at most 4194304 are allowed', 'RESOURCE_EXHAUSTED'],
  ['none', 'UNIMPLEMENTED: there is no method "none"', 'UNIMPLEMENTED'],
])('a call of %s fails, and others go on', async (method, message, code) => {
  const other = client.call('later', Buffer.from('10'));
  const error = await client.call(method, Buffer.alloc(20_000)).catch((error) => error);
  expect(error).toBeInstanceOf(RpcError);
  expect(error).toMatchObject({ message, code });
  expect((await other).toString()).toBe('10');
});

test('a deadline ends a call at both ends', async () => {
  const start = performance.now();
  await expect(client.call('wait', Buffer.alloc(1), { timeout: 200 })).rejects.toMatchObject({
    code: 'DEADLINE_EXCEEDED',
    message: 'DEADLINE_EXCEEDED: there was no response within 200 ms',
  });
  expect(performance.now() - start).toBeLessThan(250);
  await eventually(() => expect(waiting[0]?.signal.aborted).toBe(true));
});

test('a signal ends a call at both ends', async () => {
  const stop = new AbortController();
  const call = client.call('wait', Buffer.alloc(1), { signal: stop.signal });
  await eventually(() => expect(waiting.length).toBe(1));
  stop.abort(new Error('enough'));
  await expect(call).rejects.toThrow('enough');
  await eventually(() => expect(waiting[0]?.signal.reason).toMatchObject({ code: 'CANCELLED' }));
  await expect(client.call('echo', Buffer.alloc(1), { signal: stop.signal })).rejects.toThrow('enough');
});

test('a late response is dropped, and its memory freed', async () => {
  const late = client.call('later', Buffer.from('100'.padEnd(100_000)), { timeout: 50 });
  await expect(late).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' });
  await pause(500);
  expect((await client.call('echo', Buffer.from('still there'))).toString()).toBe('still there');
});

test('calls beyond the limit of the client wait, those beyond that of the server fail', async () => {
  await using few = await connect({ device, host: HOST, maxCalls: 2 });
  const calls = Array.from({ length: 10 }, () => few.call('later', Buffer.from('10')));
  const start = performance.now();
  await Promise.all(calls);
  expect(performance.now() - start).toBeGreaterThanOrEqual(50);
  const many = Array.from({ length: 101 }, () => client.call('later', Buffer.from('10')).catch(({ code }) => code));
  const results = await Promise.all(many);
  expect(results.filter((result) => result === 'RESOURCE_EXHAUSTED').length).toBe(1);
  const patient = few.call('wait', Buffer.alloc(1), { timeout: 500 });
  const second = few.call('wait', Buffer.alloc(1), { timeout: 500 });
  const third = few.call('echo', Buffer.alloc(1), { timeout: 100 });
  await expect(third).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' });
  await Promise.allSettled([patient, second]);
});

describe('streams', () => {
  test('carry messages of any length in both directions', async () => {
    const stream = client.stream('echo');
    const random = new Random(3);
    const messages = [...LENGTHS, ...LENGTHS, ...LENGTHS].map((length) => Buffer.from(random.bytes(length)));
    const writing = (async () => {
      for (const message of messages) await stream.write(message);
      await stream.end();
    })();
    let count = 0;
    for await (const message of stream) expect(message.equals(messages[count++] as Buffer)).toBe(true);
    await writing;
    expect(count).toBe(messages.length);
  });

  test('may send much in one direction and little in the other', async () => {
    const down = client.stream('count');
    await down.write(Buffer.from('1000'));
    let next = 0;
    for await (const message of down) expect(message.toString()).toBe(String(next++));
    expect(next).toBe(1000);
    const up = client.stream('sum');
    for (let i = 0; i < 1000; i++) await up.write(Buffer.alloc(i));
    await up.end();
    expect((await up.read())?.toString()).toBe('499500');
    expect(await up.read()).toBeUndefined();
  });

  test('hold a writer up for a slow reader, and no other calls', async () => {
    const stream = client.stream('slow');
    let written = 0;
    const writing = (async () => {
      for (; written < 40; written++) await stream.write(Buffer.alloc(1_000_000));
      await stream.end();
    })();
    await pause(50);
    expect(written).toBeLessThanOrEqual(16);
    expect((await client.call('echo', Buffer.from('quick'))).toString()).toBe('quick');
    await writing;
    expect(await stream.read()).toBeUndefined();
  });

  test('end with the failure of the handler, after its messages', async () => {
    const stream = client.stream('fail');
    expect((await stream.read())?.toString()).toBe('first');
    await expect(stream.read()).rejects.toMatchObject({ code: 'ABORTED', details: 'enough' });
    await expect(stream.write(Buffer.alloc(1))).rejects.toMatchObject({ code: 'ABORTED' });
  });

  test('fail when the server has no such name', async () => {
    await expect(client.stream('none').read()).rejects.toMatchObject({ code: 'UNIMPLEMENTED' });
  });

  test('end for the writer when the handler returns', async () => {
    const stream = client.stream('ignore');
    expect(await stream.read()).toBeUndefined();
    await expect(stream.write(Buffer.alloc(100_000))).rejects.toMatchObject({ code: 'CANCELLED' });
    await stream.end();
  });

  test.each(['cancel', 'signal', 'timeout'])('end at both ends by %s', async (way) => {
    const stop = new AbortController();
    const options = way === 'signal' ? { signal: stop.signal } : way === 'timeout' ? { timeout: 100 } : {};
    const stream = client.stream('wait', options);
    await eventually(() => expect(waiting.length).toBe(1));
    const reading = stream.read();
    if (way === 'cancel') stream.cancel();
    if (way === 'signal') stop.abort(new Error('enough'));
    await expect(reading).rejects.toThrow(/CANCELLED|enough|DEADLINE_EXCEEDED/);
    await eventually(() => expect(waiting[0]?.signal.aborted).toBe(true));
  });

  test('free messages that nobody reads', async () => {
    const stream = client.stream('ignore');
    for (let i = 0; i < 10; i++) await stream.write(Buffer.alloc(100_000)).catch(() => {});
    expect(await stream.read()).toBeUndefined();
    await pause(100);
  });
});

test('the end of the server ends all calls and streams', async () => {
  const [call, stream] = [client.call('wait', Buffer.alloc(1)), client.stream('wait')];
  await eventually(() => expect(waiting.length).toBe(2));
  const reading = stream.read();
  await server.close();
  for (const each of [call, reading]) await expect(each).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  expect((await client.ended).code).toBe('UNAVAILABLE');
  await expect(client.call('echo', Buffer.alloc(1))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  expect(() => client.stream('echo')).toThrow(/UNAVAILABLE/);
});

test('the end of the client ends its calls at both ends', async () => {
  const call = client.call('wait', Buffer.alloc(1));
  await eventually(() => expect(waiting.length).toBe(1));
  void client.close();
  await expect(call).rejects.toMatchObject({ code: 'CANCELLED' });
  await eventually(() => expect(waiting[0]?.signal.aborted).toBe(true));
  await eventually(() => expect(server.clients).toBe(0));
});

test('many clients share the server', async () => {
  const clients = await Promise.all(Array.from({ length: 50 }, () => connect({ device, host: HOST })));
  await Promise.all(
    clients.map(async (each, i) => {
      const response = await each.call('echo', Buffer.alloc(10_000, i));
      expect(response.every((byte) => byte === i)).toBe(true);
    }),
  );
  expect(server.clients).toBe(51);
  await Promise.all(clients.map((each) => each.close()));
});

test.each<[string, () => unknown, RegExp]>([
  ['a method', () => client.call('', Buffer.alloc(1)), /the method is "", must be a name of 1 to 255 bytes/],
  ['a request', () => client.call('echo', 'text' as never), /request is 'text', must be a Uint8Array/],
  ['a message', () => client.stream('echo').write('text' as never), /message is 'text', must be a Uint8Array/],
  ['a long request', () => client.call('echo', Buffer.alloc(5_000_000)), /has 5000000 bytes, at most 4194304/],
  ['a timeout', () => client.call('echo', Buffer.alloc(1), { timeout: 0 }), /timeout is 0, must be from 1/],
  [
    'a signal',
    () => client.call('echo', Buffer.alloc(1), { signal: 1 as never }),
    /signal is 1, must be an AbortSignal/,
  ],
  ['a host', () => connect({ device, host: '' }), /host is '', must be a name or an address/],
  ['a port', () => connect({ device, host: HOST, port: 0 }), /port is 0/],
  [
    'an option',
    () => connect({ device, host: HOST, prot: 1 } as never),
    /connect has no option 'prot', must be one of/,
  ],
  [
    'an option of a call',
    () => client.call('echo', Buffer.alloc(1), { timeuot: 1 } as never),
    /the call has no option 'timeuot'/,
  ],
  ['a limit', () => connect({ device, host: HOST, maxCalls: 0 }), /maxCalls is 0, must be from 1 to 65536/],
  ['a name', () => createServer({ device, methods: { '': () => Buffer.alloc(0) } }), /the method is ""/],
])('%s that is wrong is refused', async (_, call, message) => {
  await expect((async () => call())()).rejects.toThrow(message);
  expect((await client.call('echo', Buffer.from('still there'))).toString()).toBe('still there');
});
