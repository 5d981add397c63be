/** How the two ends of a test meet: over TCP, or with `-R` and `-z` by rdma_cm. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import type { CmAddress, Connection, Device, Server } from '../../index.js';
import { isNamed, openFor, openNamed, openToward } from '../device.js';
import { Control, listen } from '../pingpong/handshake.js';
import { CHANNEL_OPTIONS, CmChannel } from './channel.js';
import { Exchange } from './handshake.js';
import { BINARY_KEYS, TEXT_KEYS } from './keys.js';
import type { PerftestOptions } from './kinds.js';

/** A peer, and the device that reaches it. */
export interface Meeting {
  readonly device: Device;
  readonly exchange: Exchange;
  /** The peer's address, and the port where the two have met. */
  readonly peer: CmAddress;
}

/** What is done with a peer, which is there until that has ended. */
export type Use = (meeting: Meeting) => Promise<void>;

/** @throws CliError when nobody answers; as `openDevice` */
export async function askByTcp(host: string, options: PerftestOptions, use: Use): Promise<void> {
  const { port, address } = options;
  const target = { host, port, ...(address !== undefined && { localAddress: address }) };
  const control = await Control.connect(target, options.idleMs);
  try {
    await using device = await openFor(control.localAddress, options);
    await use({ device, exchange: new Exchange(control, 'client', TEXT_KEYS), peer: farEnd(control, port) });
  } finally {
    control.close();
  }
}

/** @param onListening is told what a client must know */
export async function answerByTcp(options: PerftestOptions, onListening: (where: string) => void, use: Use) {
  const { port, address } = options;
  const server = createServer({ allowHalfOpen: true });
  await listen(server, { port, ...(address !== undefined && { host: address }) });
  onListening(`TCP port ${port}`);
  let device: Device | undefined;
  try {
    // Named by hand, an interface that cannot be used is to be known before a client comes.
    if (isNamed(options)) device = await openNamed(options);
    const [socket] = (await once(server, 'connection')) as [Socket];
    const control = new Control(socket, options.idleMs);
    try {
      device ??= await openFor(control.localAddress, options);
      await use({ device, exchange: new Exchange(control, 'server', TEXT_KEYS), peer: farEnd(control, port) });
    } finally {
      control.close();
    }
  } finally {
    server.close();
    await device?.close({ force: true });
  }
}

/** @throws CmError with the reason of a refusal; as `openDevice` */
export async function askByCm(host: string, options: PerftestOptions, use: Use): Promise<void> {
  await using device = await openToward(host, options);
  await askOn(device, host, options, use);
}

export async function answerByCm(options: PerftestOptions, onListening: (where: string) => void, use: Use) {
  const { port, address } = options;
  await using device = await openNamed(options);
  await using server = await device.listen({ port, ...(address !== undefined && { host: address }) });
  onListening(`RDMA port ${port} of ${device.queryPort().interface}`);
  await answerOn(device, server, options, use);
}

export async function askOn(device: Device, host: string, { port, idleMs }: PerftestOptions, use: Use): Promise<void> {
  const timeout = idleMs > 0 ? { timeout: idleMs } : {};
  await using connection = await device.connect({ host, port, ...CHANNEL_OPTIONS, ...timeout });
  await use(meetingOn(device, connection, 'client', port, idleMs));
}

export async function answerOn(
  device: Device,
  server: Server,
  { port, idleMs }: PerftestOptions,
  use: Use,
): Promise<void> {
  for await (const request of server) {
    // the test's queue pairs come to the same port
    await server.close();
    await using connection = await request.accept(CHANNEL_OPTIONS);
    await use(meetingOn(device, connection, 'server', port, idleMs));
  }
}

function meetingOn(
  device: Device,
  connection: Connection,
  role: Exchange['role'],
  port: number,
  idleMs: number,
): Meeting {
  const channel = new CmChannel(connection, idleMs);
  return { device, exchange: new Exchange(channel, role, BINARY_KEYS), peer: farEnd(channel, port) };
}

function farEnd({ remoteAddress: address }: { readonly remoteAddress: string }, port: number): CmAddress {
  return { address, port };
}
