/** What a host offers for devices, without opening one. */
import { networkInterfaces } from 'node:os';
import { mayUsePacketSockets, preferredLink, xdpUnavailable } from '../device/links.js';
import { VerbsError } from '../errors.js';
import { macBytes, macText } from '../link/address.js';
import { listInterfaces } from '../link/interfaces.js';
import type { LinkInterface } from '../link/link.js';
import { type AttachedProgram, attachedProgram, type XdpFeatures, xdpFeatures } from '../link/xdpfeatures.js';
import { mtuWithin } from './ah.js';
import { chooseGid, type GidChoice, type GidEntry, gidTable } from './gid.js';

/** A network interface as a device would see it. */
export interface HostDevice {
  readonly interface: string;
  /** Six bytes, as text. */
  readonly mac: string;
  readonly state: 'ACTIVE' | 'DOWN';
  /** Bytes of an IP packet; 0 = not known. */
  readonly interfaceMtu: number;
  /** The largest path MTU whose packets fit the interface; 0 = none. */
  readonly activeMtu: number;
  readonly gids: readonly GidEntry[];
  /** The GID that peers are told when nothing else decides. Undefined without an address. */
  readonly gid: GidChoice | undefined;
  /** The link that the interface gets when none is asked for, and why. Undefined without the addon, or an address. */
  readonly link: { readonly kind: 'packet' | 'udp'; readonly reason: string } | undefined;
  /** What its driver offers the link `xdp`; undefined for what is no Ethernet, and where the kernel does not tell (before 6.3). */
  readonly xdp: XdpFeatures | undefined;
  /** The XDP program that runs on it. A foreign one keeps the link `xdp` away. */
  readonly xdpProgram: AttachedProgram | undefined;
}

export interface HostDevices {
  readonly interfaces: readonly HostDevice[];
  /** What the links need, and whether it is there. */
  readonly capabilities: {
    /** The native addon loads: the links `packet` and `udp` need it. */
    readonly addon: boolean;
    /** This process has CAP_NET_RAW: the link `packet` needs it. */
    readonly netRaw: boolean;
    /** libbpf, the XDP program and the capabilities are there: the link `xdp` needs them. */
    readonly xdp: boolean;
  };
  /** What is missing and what that means, for people. */
  readonly notes: readonly string[];
}

/** Looks at the host's network interfaces. Needs no privilege, and without the addon tells what it can. */
export function listDevices(): HostDevices {
  const netRaw = mayUsePacketSockets();
  const xdpMissing = xdpUnavailable();
  const xdp = xdpMissing === undefined;
  const notes = [
    ...(netRaw ? [] : ['CAP_NET_RAW is missing: no packet link; the udp link needs no privilege']),
    ...(xdp ? [] : [`no xdp link: ${xdpMissing}`]),
  ];
  try {
    const interfaces = listInterfaces().map((end) => ({
      ...describe(end, end.addresses.length > 0 ? preferredLink(end) : undefined),
      xdp: end.isEthernet && !end.isLoopback ? xdpFeatures(end.index) : undefined,
      xdpProgram: attachedProgram(end.index),
    }));
    return { interfaces, capabilities: { addon: true, netRaw, xdp }, notes };
  } catch (error) {
    if (!(error instanceof VerbsError && error.code === 'EOPNOTSUPP')) throw error;
    const interfaces = withoutAddon().map((end) => describe(end, undefined));
    return {
      interfaces,
      capabilities: { addon: false, netRaw, xdp: false },
      notes: [error.message, 'without the addon MTUs are not known, nor interfaces that are down', ...notes],
    };
  }
}

function describe(end: LinkInterface, link: HostDevice['link']): HostDevice {
  const gids = gidTable(end.addresses);
  return {
    interface: end.name,
    mac: macText(end.mac),
    state: end.up ? 'ACTIVE' : 'DOWN',
    interfaceMtu: end.mtu,
    activeMtu: mtuWithin(end.mtu),
    gids,
    gid: chooseGid(gids),
    link,
    xdp: undefined,
    xdpProgram: undefined,
  };
}

function withoutAddon(): LinkInterface[] {
  return Object.entries(networkInterfaces()).map(([name, list = []]) => ({
    name,
    index: 0,
    mtu: 0,
    mac: macBytes(list[0]?.mac ?? '00:00:00:00:00:00'),
    addresses: list.map(({ address }) => address),
    up: true,
  }));
}
