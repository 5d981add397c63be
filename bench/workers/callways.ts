/** The ways to call a server: ours, Connect over it, grpc-js, and Node's `net` with a frame of its own. */
import { once } from 'node:events';
import * as tcp from 'node:net';
import { create, createFileRegistry } from '@bufbuild/protobuf';
import type { GenService } from '@bufbuild/protobuf/codegenv2';
import {
  type BytesValueSchema,
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers,
} from '@bufbuild/protobuf/wkt';
import { type Client, createClient } from '@connectrpc/connect';
import * as grpc from '@grpc/grpc-js';
import { type Device, openDevice } from 'wasm-roce';
import { createStreams, createTransport } from 'wasm-roce/connectrpc';
import { connect, createServer, type RpcClient, type RpcServer, type RpcServerOptions } from 'wasm-roce/rpc';
import type { DeviceOptions } from './ways.js';

const BYTES_VALUE = '.google.protobuf.BytesValue';

type BytesValue = typeof BytesValueSchema;
type EchoService = GenService<{ call: { methodKind: 'unary'; input: BytesValue; output: BytesValue } }>;

export interface CallWay {
  open?(options: DeviceOptions): Promise<void>;
  /** Serves the echo of requests. */
  listen(address: string, port: number): Promise<void>;
  connect(address: string, port: number): Promise<void>;
  call(request: Buffer): Promise<Buffer>;
  close(): Promise<void>;
}

export class RpcWay implements CallWay {
  protected readonly handlers: Pick<RpcServerOptions, 'methods' | 'streams'> = {
    methods: { echo: (request) => request },
  };
  #device: Device | undefined;
  #server: RpcServer | undefined;
  #client: RpcClient | undefined;

  async open({ link, mode, interface: name }: DeviceOptions): Promise<void> {
    this.#device ??= await openDevice({ link: link as 'udp', mode: mode as 'inline', interface: name });
  }

  async listen(_: string, port: number): Promise<void> {
    const device = this.#device as Device;
    this.#server = await createServer({ device, port, ...this.handlers });
  }

  async connect(host: string, port: number): Promise<void> {
    this.#client = await connect({ device: this.#device as Device, host, port });
    this.onConnect(this.#client);
  }

  protected onConnect(_: RpcClient): void {}

  call(request: Buffer): Promise<Buffer> {
    return (this.#client as RpcClient).call('echo', request);
  }

  async close(): Promise<void> {
    await this.#client?.close();
    await this.#server?.close();
    // another contender may use the same port
    await this.#device?.close();
    this.#device = undefined;
  }
}

/** A service with one procedure, as its compiled description would be. */
const ECHO_SERVICE = createFileRegistry(
  create(FileDescriptorProtoSchema, {
    name: 'echo.proto',
    package: 'echo',
    dependency: [file_google_protobuf_wrappers.proto.name],
    service: [{ name: 'Echo', method: [{ name: 'Call', inputType: BYTES_VALUE, outputType: BYTES_VALUE }] }],
  }),
  () => file_google_protobuf_wrappers,
).getService('echo.Echo') as EchoService;

export class ConnectWay extends RpcWay {
  protected override readonly handlers = {
    streams: createStreams({ routes: ({ service }) => service(ECHO_SERVICE, { call: (request) => request }) }),
  };
  #echo: Client<EchoService> | undefined;

  protected override onConnect(client: RpcClient): void {
    this.#echo = createClient(ECHO_SERVICE, createTransport({ client }));
  }

  override async call(request: Buffer): Promise<Buffer> {
    const { value } = await (this.#echo as Client<EchoService>).call({ value: request });
    return Buffer.from(value.buffer, value.byteOffset, value.length);
  }
}

const bytesAsTheyAre = (bytes: Buffer): Buffer => bytes;
const ECHO = {
  path: '/echo.Echo/Call',
  requestStream: false,
  responseStream: false,
  requestSerialize: bytesAsTheyAre,
  requestDeserialize: bytesAsTheyAre,
  responseSerialize: bytesAsTheyAre,
  responseDeserialize: bytesAsTheyAre,
} as const;

export class GrpcWay implements CallWay {
  #server: grpc.Server | undefined;
  #client: grpc.Client | undefined;

  async listen(address: string, port: number): Promise<void> {
    const server = new grpc.Server();
    this.#server = server;
    const echo: grpc.handleUnaryCall<Buffer, Buffer> = ({ request }, respond) => respond(null, request);
    server.addService({ Call: ECHO }, { Call: echo });
    await new Promise<void>((resolve, reject) =>
      server.bindAsync(`${address}:${port}`, grpc.ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  }

  async connect(address: string, port: number): Promise<void> {
    const client = new grpc.Client(`${address}:${port}`, grpc.credentials.createInsecure());
    this.#client = client;
    await new Promise<void>((resolve, reject) =>
      client.waitForReady(Date.now() + 10_000, (error) => (error ? reject(error) : resolve())),
    );
  }

  call(request: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#client?.makeUnaryRequest(ECHO.path, bytesAsTheyAre, bytesAsTheyAre, request, (error, response) =>
        error ? reject(error) : resolve(response as Buffer),
      );
    });
  }

  async close(): Promise<void> {
    this.#client?.close();
    this.#server?.forceShutdown();
  }
}

/** Length of the body, and number of the call, before each body (bytes). */
const HEADER_BYTES = 8;

/** Cuts what arrives into frames. */
function frames(socket: tcp.Socket, onFrame: (call: number, body: Buffer) => void): void {
  let rest: Buffer = Buffer.alloc(0);
  socket.on('data', (data: Buffer) => {
    rest = rest.length === 0 ? data : Buffer.concat([rest, data]);
    let at = 0;
    while (rest.length - at >= HEADER_BYTES) {
      const end = at + HEADER_BYTES + rest.readUInt32BE(at);
      if (end > rest.length) break;
      onFrame(rest.readUInt32BE(at + 4), rest.subarray(at + HEADER_BYTES, end));
      at = end;
    }
    rest = rest.subarray(at);
  });
  socket.on('error', () => {});
}

function send(socket: tcp.Socket, call: number, body: Buffer): void {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.writeUInt32BE(body.length, 0);
  header.writeUInt32BE(call, 4);
  // what is sent in this turn of the event loop goes by one call of the kernel
  if (socket.writableCorked === 0) {
    socket.cork();
    process.nextTick(() => socket.uncork());
  }
  socket.write(header);
  socket.write(body);
}

export class NetWay implements CallWay {
  #server: tcp.Server | undefined;
  #socket: tcp.Socket | undefined;
  #lastCall = 0;
  readonly #calls = new Map<number, (response: Buffer) => void>();

  async listen(address: string, port: number): Promise<void> {
    const server = tcp.createServer({ noDelay: true }, (socket) =>
      frames(socket, (call, body) => send(socket, call, body)),
    );
    this.#server = server.listen(port, address);
    await once(server, 'listening');
  }

  async connect(host: string, port: number): Promise<void> {
    const socket = tcp.connect({ host, port, noDelay: true });
    this.#socket = socket;
    await once(socket, 'connect');
    frames(socket, (call, body) => {
      this.#calls.get(call)?.(body);
      this.#calls.delete(call);
    });
  }

  call(request: Buffer): Promise<Buffer> {
    const call = this.#lastCall++;
    return new Promise((resolve) => {
      this.#calls.set(call, resolve);
      send(this.#socket as tcp.Socket, call, request);
    });
  }

  async close(): Promise<void> {
    this.#socket?.destroy();
    this.#server?.close();
  }
}
