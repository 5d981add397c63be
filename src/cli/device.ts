/** Opens the devices of the commands, and publishes them for `wasm-roce stat`. */
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { openSharedBy } from '../deviceuse.js';
import { createMemoryHub, type Device, type OpenOptions, openDevice } from '../index.js';
import type { HostLinkKind } from './options.js';

/** Frames that a device keeps to explain a failure. */
export const TRACE_FRAMES = 256;

/** Options of the command line for the device of one end. */
export interface DeviceOptions {
  /** Network interface. Default: the one that the connection to the peer uses. */
  readonly interface?: string;
  /** The only local address to use. */
  readonly address?: string;
  readonly link?: HostLinkKind;
  readonly open: Pick<OpenOptions, 'mode' | 'spin' | 'pcap' | 'fault' | 'wrapLink' | 'memoryBytes' | 'trace'>;
}

/**
 * Opens a device and publishes it. A failure to publish is ignored, since the user has not asked for it.
 * @throws as `openDevice`
 */
export async function openPublished(options: OpenOptions): Promise<Device> {
  const device = await openDevice({ trace: TRACE_FRAMES, decisions: true, ...options });
  await device.publish().catch(() => {});
  return device;
}

/** Options for a client and a server in one process, on the memory link. Faults and capture apply to the client. */
export function memoryLinkOptions(open: DeviceOptions['open']): readonly [client: OpenOptions, server: OpenOptions] {
  const hub = createMemoryHub();
  const { pcap: _pcap, fault: _fault, wrapLink: _wrapLink, ...plain } = open;
  return [
    { hub, ...open },
    { hub, ...plain },
  ];
}

/** Whether the user has named an interface or address, so that the device can be opened before a peer is known. */
export function isDeviceNamed({ interface: name, address }: DeviceOptions): boolean {
  return name !== undefined || address !== undefined;
}

/**
 * Opens the device that the options name.
 * @param peer chooses the interface if the options name none
 * @throws as `openPublished`
 */
export function openNamed({ interface: name, address, link, open }: DeviceOptions, peer?: string): Promise<Device> {
  return openPublished({
    ...open,
    ...(peer !== undefined && { peer }),
    ...(link && { link }),
    ...(name !== undefined && { interface: name }),
    ...(address !== undefined && { addresses: [address] }),
  });
}

/**
 * Opens the device of a service. A service is on all interfaces of the host if the options name none, and opens their
 * devices itself, by these options; a capture is of one device.
 * @throws as `openPublished`
 */
export async function openForService(options: DeviceOptions): Promise<Device | undefined> {
  const { link, open } = options;
  if (isDeviceNamed(options) || open.pcap !== undefined) return openNamed(options);
  openSharedBy((place) => openPublished({ ...place, ...open, ...(link && { link }) }));
  return undefined;
}

/** Returns the addresses of a service on a device, or on all interfaces if there is none: the best one first. */
export function addressesOf(device: Device | undefined): string[] {
  if (device === undefined) return networkAddresses();
  const { index } = device.chooseGid();
  return [device.gids[index], ...device.gids.filter((gid) => gid.index !== index)].flatMap((gid) => gid?.address ?? []);
}

/** Those that other hosts reach: neither loopback nor link-local, unless there are no others. */
function networkAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const global = all.filter(
    ({ internal, scopeid = 0 }: NetworkInterfaceInfo & { scopeid?: number }) => !internal && scopeid === 0,
  );
  return (global.length > 0 ? global : all).map(({ address }) => address);
}

/**
 * Opens the device that the options name, or else the one that has a local address.
 * @param localAddress that of the TCP connection to the peer
 */
export function openForAddress(localAddress: string, options: DeviceOptions): Promise<Device> {
  if (isDeviceNamed(options)) return openNamed(options);
  const found = Object.entries(networkInterfaces()).find(([, list]) =>
    list?.some(({ address, internal }) => address === localAddress && !internal),
  );
  // On loopback use this address alone, so that two ends on one host can share the interface.
  return openNamed({ ...options, ...(found ? { interface: found[0] } : { address: localAddress }) });
}

/**
 * Opens the device that the options name, or else the one from which the kernel would reach a host.
 * @throws as `openPublished`; VerbsError EHOSTUNREACH when there is no route to the host
 */
export function openForHost(host: string, options: DeviceOptions): Promise<Device> {
  return openNamed(options, host);
}
