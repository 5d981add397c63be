/** Lists the network interfaces that devices can be opened on. */
import { networkInterfaces } from 'node:os';
import { macBytes, macText } from '../base/address.js';
import { mayUsePacketSockets, preferredLink, xdpUnavailable } from '../device/chooselink.js';
import { VerbsError } from '../errors.js';
import { listInterfaces } from '../link/interfaces.js';
import type { LinkInterface } from '../link/link.js';
import { type AttachedProgram, attachedProgram, type XdpFeatures, xdpFeatures } from '../link/xdp/features.js';
import { chooseGid, type GidChoice, type GidEntry, gidTable } from './address/gid.js';
import { maxPathMtu } from './address/resolvedaddress.js';

/** A network interface, as a device on it would see it. */
export interface HostDevice {
  /** Name of the interface, e.g. `eth0`. */
  readonly interface: string;
  /** MAC address as text, e.g. `02:00:00:00:00:01`. */
  readonly mac: string;
  /** Whether the interface is up. */
  readonly state: 'ACTIVE' | 'DOWN';
  /** MTU of the interface: bytes of an IP packet; 0 = unknown. */
  readonly interfaceMtu: number;
  /** Largest path MTU that fits the interface, in payload bytes; 0 = none. */
  readonly activeMtu: number;
  /** GID table: one entry per address. */
  readonly gids: readonly GidEntry[];
  /** The GID advertised to a peer whose address is not known yet. Undefined without an address. */
  readonly gid: GidChoice | undefined;
  /** The default link of the interface, and why. Undefined without the native addon or without an address. */
  readonly link: { readonly kind: 'packet' | 'udp'; readonly reason: string } | undefined;
  /** XDP features of the driver. Undefined for interfaces other than Ethernet, and on kernels before 6.3. */
  readonly xdp: XdpFeatures | undefined;
  /** The attached XDP program, if any. The link `xdp` cannot coexist with another XDP program. */
  readonly xdpProgram: AttachedProgram | undefined;
}

/** Result of {@link listDevices}. */
export interface HostDevices {
  /** Network interfaces of the host. */
  readonly interfaces: readonly HostDevice[];
  /** Requirements of the links, and whether the host meets them. */
  readonly capabilities: {
    /** The native addon can be loaded; the links `packet` and `udp` need it. */
    readonly addon: boolean;
    /** The process has CAP_NET_RAW; the link `packet` needs it. */
    readonly netRaw: boolean;
    /** libbpf, the XDP program and the capabilities are available; the link `xdp` needs them. */
    readonly xdp: boolean;
  };
  /** Missing requirements and their consequences, as text. */
  readonly notes: readonly string[];
}

/**
 * Lists the host's network interfaces and what devices on them can use. Needs no privilege. Without the native addon,
 * MTUs and interfaces that are down are unknown.
 */
export function listDevices(): HostDevices {
  const netRaw = mayUsePacketSockets();
  const xdpMissing = xdpUnavailable();
  const xdp = xdpMissing === undefined;
  const notes = [
    ...(netRaw ? [] : ['no packet link: CAP_NET_RAW is missing; the udp link needs no privilege']),
    ...(xdp ? [] : [`no xdp link: ${xdpMissing}`]),
  ];
  try {
    const interfaces = listInterfaces().map((iface) => ({
      ...describe(iface, iface.addresses.length > 0 ? preferredLink(iface) : undefined),
      xdp: iface.isEthernet && !iface.isLoopback ? xdpFeatures(iface.index) : undefined,
      xdpProgram: attachedProgram(iface.index),
    }));
    return { interfaces, capabilities: { addon: true, netRaw, xdp }, notes };
  } catch (error) {
    if (!(error instanceof VerbsError && error.code === 'EOPNOTSUPP')) throw error;
    const interfaces = interfacesWithoutAddon().map((iface) => describe(iface, undefined));
    return {
      interfaces,
      capabilities: { addon: false, netRaw, xdp: false },
      notes: [error.message, 'without the addon, MTUs and interfaces that are down are unknown', ...notes],
    };
  }
}

function describe(iface: LinkInterface, link: HostDevice['link']): HostDevice {
  const gids = gidTable(iface.addresses);
  return {
    interface: iface.name,
    mac: macText(iface.mac),
    state: iface.up ? 'ACTIVE' : 'DOWN',
    interfaceMtu: iface.mtu,
    activeMtu: maxPathMtu(iface.mtu),
    gids,
    gid: chooseGid(gids),
    link,
    xdp: undefined,
    xdpProgram: undefined,
  };
}

function interfacesWithoutAddon(): LinkInterface[] {
  return Object.entries(networkInterfaces()).map(([name, list = []]) => ({
    name,
    index: 0,
    mtu: 0,
    mac: macBytes(list[0]?.mac ?? '00:00:00:00:00:00'),
    addresses: list.map(({ address }) => address),
    up: true,
  }));
}
