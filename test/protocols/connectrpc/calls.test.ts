// Services of Connect over calls of this project, in virtual time. Client, router and codec are those of Connect.
import { create } from '@bufbuild/protobuf';
import { BytesValueSchema, StringValueSchema } from '@bufbuild/protobuf/wkt';
import {
  type Client,
  Code,
  ConnectError,
  createClient,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type Interceptor,
} from '@connectrpc/connect';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createStreams, createTransport, type TransportOptions } from '../../../src/connectrpc.js';
import { connect, createServer, type RpcClient, type RpcServer } from '../../../src/rpc.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, OWN_HOST, peer, useDevices } from '../devices.js';
import { Everything } from './service.js';

useDevices();

const address = createContextKey('');
const text = (value: string) => ({ value });

let server: RpcServer;
let rpc: RpcClient;
let client: Client<typeof Everything>;
/** Contexts of calls that wait for their end. */
let waiting: HandlerContext[];
let isCleaned: boolean;

const clientWith = (options: Partial<TransportOptions> = {}) =>
  createClient(Everything, createTransport({ client: rpc, ...options }));

const untilAborted = (context: HandlerContext) =>
  new Promise<never>((_, reject) => {
    waiting.push(context);
    context.signal.addEventListener('abort', () => reject(context.signal.reason));
  });

beforeEach(async () => {
  waiting = [];
  isCleaned = false;
  server = await createServer({
    device: peer,
    streams: createStreams({
      contextValues: (context) => createContextValues().set(address, context.address),
      routes: ({ service }) =>
        service(Everything, {
          echo(request, context) {
            context.responseHeader.set('from', context.values.get(address));
            context.responseHeader.set('said', context.requestHeader.get('say') ?? '');
            context.responseTrailer.set('after', 'all');
            return request;
          },
          fail({ value }) {
            const detail = { desc: StringValueSchema, value: create(StringValueSchema, text('why')) };
            if (value === '') throw new Error('secret');
            throw new ConnectError(value, Code.NotFound, { hint: 'look elsewhere' }, [detail]);
          },
          wait: (_, context) => untilAborted(context),
          async *count({ value }, context) {
            context.responseHeader.set('counts', value);
            try {
              for (let i = 0; i < Number(value); i++) yield text(String(i));
              if (value === 'forever') for (;;) yield text('again');
              if (value === 'wrong') throw new ConnectError('no number', Code.InvalidArgument);
              context.responseTrailer.set('counted', value);
            } finally {
              isCleaned = true;
            }
          },
          async join(requests) {
            let joined = '';
            for await (const { value } of requests) {
              if (value === 'stop') break;
              joined += value;
            }
            return text(joined);
          },
          async *talk(requests) {
            for await (const request of requests) yield request;
          },
        }),
    }),
  });
  rpc = await connect({ device, host: HOST });
  client = clientWith();
});

afterEach(async () => {
  await rpc.close();
  await server.close();
  for (const each of [device, peer]) await eventually(() => each.close());
});

async function failureOf(call: Promise<unknown>): Promise<ConnectError> {
  const error = await call.then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(ConnectError);
  return error;
}

async function valuesOf(messages: AsyncIterable<{ readonly value: string }>): Promise<string[]> {
  const values: string[] = [];
  for await (const { value } of messages) values.push(value);
  return values;
}

async function* texts(...values: string[]) {
  for (const value of values) yield text(value);
}

test.each([0, 1, 1000, 65_536, 300_000, 5 * 2 ** 20])('a request and a response of %i bytes arrive', async (length) => {
  const value = Buffer.from(new Random(length).bytes(length));
  const response = await client.echo({ value });
  expect(value.equals(response.value)).toBe(true);
});

test('metadata arrives in both directions, and the server knows the client’s address', async () => {
  const metadata: Record<string, string | null> = {};
  await client.echo(create(BytesValueSchema), {
    headers: { say: 'grüß' },
    onHeader: (header) => {
      for (const name of ['from', 'said']) metadata[name] = header.get(name);
    },
    onTrailer: (trailer) => {
      metadata.after = trailer.get('after');
    },
  });
  expect(metadata).toEqual({ from: OWN_HOST, said: 'grüß', after: 'all' });
});

test('an error arrives with its code, its metadata and its details', async () => {
  const error = await failureOf(client.fail(text('no such row')));
  expect(error).toMatchObject({ code: Code.NotFound, rawMessage: 'no such row' });
  expect(error.metadata.get('hint')).toBe('look elsewhere');
  expect(error.findDetails(StringValueSchema)).toMatchObject([{ value: 'why' }]);
});

test('the text of an exception that is no Connect error stays at the server', async () => {
  expect(await failureOf(client.fail(text('')))).toMatchObject({ code: Code.Internal, rawMessage: 'internal error' });
});

test('procedures that the server does not have are unimplemented', async () => {
  expect(await failureOf(client.absent(text('')))).toMatchObject({ code: Code.Unimplemented });
  await server.close();
  server = await createServer({ device: peer, streams: createStreams({ routes: () => {} }) });
  await rpc.close();
  rpc = await connect({ device, host: HOST });
  expect(await failureOf(clientWith().absent(text('')))).toMatchObject({
    code: Code.Unimplemented,
    rawMessage: 'there is no stream "/test.Everything/Absent"',
  });
});

test('a deadline ends the call at both ends', async () => {
  const error = await failureOf(client.wait(text(''), { timeoutMs: 50 }));
  expect(error).toMatchObject({ code: Code.DeadlineExceeded });
  await eventually(() => expect(waiting.map(({ signal }) => signal.aborted)).toEqual([true]));
});

test('a signal ends the call at both ends', async () => {
  const controller = new AbortController();
  const call = failureOf(client.wait(text(''), { signal: controller.signal }));
  await eventually(() => expect(waiting).toHaveLength(1));
  controller.abort();
  expect(await call).toMatchObject({ code: Code.Canceled });
  await eventually(() => expect(waiting.map(({ signal }) => signal.aborted)).toEqual([true]));
});

test('calls fail as unavailable when the connection ends', async () => {
  const call = failureOf(client.wait(text('')));
  await eventually(() => expect(waiting).toHaveLength(1));
  await server.close();
  expect(await call).toMatchObject({ code: Code.Unavailable });
  expect(await failureOf(client.echo({}))).toMatchObject({ code: Code.Unavailable });
});

test('messages of the server arrive, with headers and trailers', async () => {
  const metadata: Record<string, string | null> = {};
  const values = await valuesOf(
    client.count(text('100'), {
      onHeader: (header) => {
        metadata.counts = header.get('counts');
      },
      onTrailer: (trailer) => {
        metadata.counted = trailer.get('counted');
      },
    }),
  );
  expect(values).toEqual(Array.from({ length: 100 }, (_, i) => String(i)));
  expect(metadata).toEqual({ counts: '100', counted: '100' });
  expect(await failureOf(valuesOf(client.count(text('wrong'))))).toMatchObject({ code: Code.InvalidArgument });
});

test('a reader that leaves the loop ends the procedure at the server', async () => {
  let count = 0;
  for await (const _ of client.count(text('forever'))) if (++count === 50) break;
  await eventually(() => expect(isCleaned).toBe(true));
});

test('messages of the client arrive, all or as many as the server takes', async () => {
  expect(await client.join(texts('a', 'b', 'c'))).toMatchObject({ value: 'abc' });
  async function* endless() {
    yield* texts('a', 'b', 'stop');
    for (;;) yield text('more');
  }
  expect(await client.join(endless())).toMatchObject({ value: 'ab' });
});

test('an error of the client’s messages is the error of the call', async () => {
  async function* broken() {
    yield text('a');
    throw new ConnectError('no more', Code.DataLoss);
  }
  expect(await failureOf(client.join(broken()))).toMatchObject({ code: Code.DataLoss, rawMessage: 'no more' });
});

test('each message of a bidirectional call may be answered before the next is sent', async () => {
  const random = new Random(2);
  const requests = [1, 70_000, 0, 1_000_000].map((length) => Buffer.from(random.bytes(length)));
  let answer = () => {};
  async function* questions() {
    for (const value of requests) {
      yield { value };
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
    }
  }
  let count = 0;
  for await (const { value } of client.talk(questions())) {
    expect(requests[count++]?.equals(value)).toBe(true);
    answer();
  }
  expect(count).toBe(requests.length);
});

test('many calls run at a time', async () => {
  const values = Array.from({ length: 500 }, (_, i) => Buffer.from(String(i)));
  const responses = await Promise.all(values.map((value) => client.echo({ value })));
  expect(responses.map(({ value }) => Buffer.from(value).toString())).toEqual(values.map(String));
});

test('options of Connect work: JSON, interceptors, lengths, GET', async () => {
  const seen: string[] = [];
  const see: Interceptor = (next) => async (request) => {
    seen.push(`${request.requestMethod} ${request.url} ${request.header.get('content-type')}`);
    return next(request);
  };
  const value = new TextEncoder().encode('hello');
  expect(await clientWith({ useBinaryFormat: false, interceptors: [see] }).echo({ value })).toMatchObject({ value });
  expect(await clientWith({ useHttpGet: true, interceptors: [see] }).echo({ value })).toMatchObject({ value });
  const url = `http://${HOST}/test.Everything/Echo`;
  expect(seen).toEqual([`POST ${url} application/json`, `POST ${url} application/proto`]);
  const short = clientWith({ writeMaxBytes: 100 });
  expect(await failureOf(short.echo({ value: Buffer.alloc(101) }))).toMatchObject({ code: Code.ResourceExhausted });
});

test.each([
  '',
  'text',
  '1',
  '{}',
  '{"method":1,"url":"/","header":[]}',
  '{"method":"POST","url":"/","header":[["a"]]}',
])('a client that sends %j in place of a request’s head ends its own call alone', async (head) => {
  const stream = rpc.stream('/test.Everything/Echo');
  await stream.write(Buffer.from(head));
  await expect(stream.read()).rejects.toMatchObject({ code: 'INTERNAL' });
  expect((await client.echo({ value: Buffer.from('hello') })).value).toHaveLength(5);
});

test.each([
  [],
  ['text'],
  ['{}'],
  ['{"status":200,"header":[[1]]}'],
  ['{"status":200,"header":[["content-type","application/proto"]]}', '', 'text'],
])('a server that sends %j in place of a response’s head or trailers fails the call', async (...messages) => {
  await server.close();
  await rpc.close();
  server = await createServer({
    device: peer,
    streams: {
      async '/test.Everything/Echo'(stream) {
        for (const message of messages) await stream.write(Buffer.from(message));
      },
    },
  });
  rpc = await connect({ device, host: HOST });
  expect(await failureOf(clientWith().echo({}))).toMatchObject({ code: Code.Internal });
});

test('wrong options are refused', () => {
  expect(() => createTransport({ client: {} as RpcClient })).toThrow('client is an object, must be an RpcClient');
  expect(() => createStreams({ routes: 1 as never })).toThrow('routes is 1, must be a function');
});
