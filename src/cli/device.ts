/** How commands open devices: `wasm-roce stat` can watch them. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { createMemoryHub, type Device, type OpenOptions, openDevice } from '../index.js';
import type { HostLinkKind } from './options.js';

/** Frames that are kept to explain a failure. */
export const TRACE = 256;
const ROCE_PORT = 4791;

/** What a user has said about the device of one end. */
export interface DeviceChoice {
  /** Network interface; without it the one that the TCP connection takes. */
  readonly interface?: string;
  /** The only local address to use. */
  readonly address?: string;
  readonly link?: HostLinkKind;
  readonly open: Pick<OpenOptions, 'mode' | 'spin' | 'pcap' | 'fault' | 'memoryBytes' | 'trace'>;
}

/** @throws as `openDevice`; not when the device cannot be published, which nobody has asked for */
export async function openWatched(options: OpenOptions): Promise<Device> {
  const device = await openDevice({ trace: TRACE, ...options });
  await device.publish().catch(() => {});
  return device;
}

/** What opens client and server of one process, on the memory link: faults and capture are the client's. */
export function memoryEnds(open: DeviceChoice['open']): readonly [client: OpenOptions, server: OpenOptions] {
  const hub = createMemoryHub();
  const { pcap: _pcap, fault: _fault, ...plain } = open;
  return [
    { hub, ...open },
    { hub, ...plain },
  ];
}

/** The user has named interface or address, so that the device can be opened before a peer is known. */
export function isNamed({ interface: name, address }: DeviceChoice): boolean {
  return name !== undefined || address !== undefined;
}

/** @throws as `openWatched` */
export function openNamed({ interface: name, address, link, open }: DeviceChoice): Promise<Device> {
  return openWatched({
    ...open,
    ...(link && { link }),
    ...(name !== undefined && { interface: name }),
    ...(address !== undefined && { addresses: [address] }),
  });
}

/**
 * Opens the device that is named, or else the one that a TCP connection takes.
 * @param localAddress of the connection
 */
export function openFor(localAddress: string, choice: DeviceChoice): Promise<Device> {
  if (isNamed(choice)) return openNamed(choice);
  const found = Object.entries(networkInterfaces()).find(([, list]) =>
    list?.some(({ address, internal }) => address === localAddress && !internal),
  );
  // On loopback only the address itself, so that two ends of one host can share it.
  return openNamed({ ...choice, ...(found ? { interface: found[0] } : { address: localAddress }) });
}

/** As `openFor`, for a host that is still to be reached. @throws as `openWatched`; the system's error when no way leads there */
export async function openToward(host: string, choice: DeviceChoice): Promise<Device> {
  return isNamed(choice) ? openNamed(choice) : openFor(await localAddressToward(host), choice);
}

/** The address of ours from which the kernel would reach a host. Nothing is sent. */
async function localAddressToward(host: string): Promise<string> {
  const { address, family } = await lookup(host);
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4');
  try {
    socket.connect(ROCE_PORT, address);
    await once(socket, 'connect');
    return socket.address().address;
  } finally {
    socket.close();
  }
}
