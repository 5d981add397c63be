/** Chooses the link of a device. */
import { readFileSync } from 'node:fs';
import { textOf, VerbsError } from '../errors.js';
import { ROCE_PORT } from '../link/headers.js';
import { firstUsable, type HostInterface, interfaceByAddress, interfaceByName } from '../link/interfaces.js';
import type { Link } from '../link/link.js';
import { MemoryHub, memoryLink } from '../link/memory/link.js';
import { PacketLink, type PacketLinkOptions } from '../link/packet.js';
import { UdpLink } from '../link/udp.js';
import { libbpfMissing } from '../link/xdp/libbpf.js';
import { XdpLink, type XdpLinkOptions, type XdpOptions } from '../link/xdp/link.js';
import { programMissing } from '../link/xdp/program.js';

/** Kind of a link on a network interface. */
export type LinkKind = 'packet' | 'udp' | 'xdp';

/** Options for a link on a network interface. */
export interface LinkChoice {
  /** Name of a network interface, e.g. `eth0`. */
  readonly interface?: string;
  /** A peer, and the local address from which it is reached: that address's interface, if no other is named. */
  readonly towards?: { readonly peer: string; readonly from: string };
  /** Local addresses to use. Default: all of the interface. */
  readonly addresses?: readonly string[];
  /** Kind of the link. Default: `packet` if the process has CAP_NET_RAW, else `udp`. */
  readonly kind?: LinkKind;
  /** As `PacketLinkOptions.flowSteering`. Other links ignore it. */
  readonly flowSteering?: boolean;
  /** Options of the `xdp` link. */
  readonly xdp?: XdpOptions;
  /**
   * Whether the link shares its addresses with other programs, through the broker. Without a broker it does not, and
   * the notes say why.
   */
  readonly broker?: boolean;
}

/** A link, and why it was chosen. */
export interface ChosenLink {
  readonly link: Link;
  /** The choices and their reasons, for people to read. */
  readonly notes: readonly string[];
}

/**
 * Codes of `openShared` that leave sockets of its own. A broker that does not reply is none of them: it has the sockets
 * of the address, and those who connect to the address would reach either it or the device.
 */
const NO_BROKER: readonly string[] = ['EOPNOTSUPP', 'EPERM'];
/** The same of links that work without the port, beside rxe for instance. */
const NO_PORT: readonly string[] = [...NO_BROKER, 'EADDRINUSE'];

let commonHub: MemoryHub | undefined;

/**
 * Opens a `memory` link.
 * @param hub default: a hub that all devices of the process without a hub share
 * @param addresses default: `10.0.0.n`, `fd00::n` and `fe80::n` with the first n that is free
 * @throws VerbsError EADDRINUSE
 */
export function openMemoryLink(hub: MemoryHub | undefined, addresses: readonly string[] | undefined): ChosenLink {
  commonHub ??= new MemoryHub();
  const on = hub ?? commonHub;
  let n = 1;
  while (on.owner(`10.0.0.${n}`) !== undefined) n++;
  return {
    link: memoryLink(on, {
      addresses: addresses ?? [`10.0.0.${n}`, `fd00::${n.toString(16)}`, `fe80::${n.toString(16)}`],
    }),
    notes: [hub ? 'link memory: the devices of one hub in this process' : 'link memory: the devices of this process'],
  };
}

/** Bits in the kernel's capability sets (capabilities(7)). */
const CAP = { NET_ADMIN: 12n, NET_RAW: 13n, SYS_ADMIN: 21n, BPF: 39n } as const;

/**
 * Opens a link on a network interface of this host.
 * @throws VerbsError ENODEV, EADDRNOTAVAIL, EADDRINUSE, EPERM, EOPNOTSUPP from the link
 */
export async function openHostLink(choice: LinkChoice): Promise<ChosenLink> {
  const notes: string[] = [];
  const iface = chooseInterface(choice, notes);
  const {
    towards,
    addresses = iface.isLoopback && towards ? [towards.from] : undefined,
    flowSteering = false,
  } = choice;
  const where = { interface: iface.name, ...(addresses && { addresses }) };
  const kind = choice.kind ?? choosePreferred(iface, notes);
  const open: Sharable<PacketLinkOptions & XdpLinkOptions> = LINKS[kind];
  const options = { ...where, ...(kind === 'packet' && { flowSteering }), ...(kind === 'xdp' && choice.xdp) };
  return { link: choice.broker ? await openShared(open, options, notes) : open.open(options), notes };
}

const LINKS = { packet: PacketLink, udp: UdpLink, xdp: XdpLink } as const;

/** The class of a link that can share its addresses. */
interface Sharable<Options> {
  open(options: Options): Link;
  openShared(options: Options): Promise<Link>;
}

/** Opens a link whose port other programs share, or one of its own where there is no broker. */
async function openShared<Options>(kind: Sharable<Options>, where: Options, notes: string[]): Promise<Link> {
  try {
    const link = await kind.openShared(where);
    notes.push(`UDP port ${ROCE_PORT} is shared with other programs: slot ${link.sharedPort?.slot} of the broker`);
    return link;
  } catch (error) {
    const codes = kind === UdpLink ? NO_BROKER : NO_PORT;
    if (!(error instanceof VerbsError && codes.includes(error.code))) throw error;
    notes.push(`UDP port ${ROCE_PORT} is not shared with other programs: ${textOf(error)}`);
    try {
      return kind.open(where);
    } catch (taken) {
      if (!(taken instanceof VerbsError) || taken.code !== 'EADDRINUSE') throw taken;
      throw new VerbsError('EADDRINUSE', `${textOf(taken)}; the broker does not help: ${textOf(error)}`);
    }
  }
}

function choosePreferred(iface: HostInterface, notes: string[]): PreferredKind {
  const { kind, reason } = preferredLink(iface);
  notes.push(`link ${kind}, because ${reason}`);
  return kind;
}

/** `xdp` occupies queues of the interface, so it is never the default. */
type PreferredKind = Exclude<LinkKind, 'xdp'>;

/** Returns the default link of an interface, and the reason. */
export function preferredLink(iface: HostInterface): { readonly kind: PreferredKind; readonly reason: string } {
  if (!iface.isEthernet) return { kind: 'udp', reason: `${iface.name} does not carry Ethernet frames` };
  if (!mayUsePacketSockets())
    return { kind: 'udp', reason: 'packet sockets need the capability CAP_NET_RAW, which this process does not have' };
  return { kind: 'packet', reason: 'this process has the capability CAP_NET_RAW' };
}

function chooseInterface({ interface: name, addresses, towards }: LinkChoice, notes: string[]): HostInterface {
  if (name !== undefined) return interfaceByName(name);
  const address = addresses?.[0];
  if (address !== undefined) return interfaceByAddress(address);
  if (towards !== undefined) {
    const found = interfaceByAddress(towards.from);
    notes.push(`interface ${found.name}, by which ${towards.peer} is reached`);
    return found;
  }
  const found = firstUsable();
  notes.push(
    found.isLoopback
      ? `interface ${found.name}, because no other interface is up and has an address`
      : `interface ${found.name}, the first that is up and has an address; choose another with the option interface`,
  );
  return found;
}

/** Returns whether this process has CAP_NET_RAW in its effective set. The namespace may still refuse packet sockets. */
export function mayUsePacketSockets(): boolean {
  return hasCapability(CAP.NET_RAW);
}

/** Returns why this process cannot open the xdp link on any interface; undefined if nothing is known to prevent it. */
export function xdpUnavailable(): string | undefined {
  const missing = libbpfMissing() ?? programMissing();
  if (missing !== undefined) return missing;
  const absent = (['NET_RAW', 'NET_ADMIN', 'BPF'] as const).filter(
    (name) => !hasCapability(CAP[name]) && !(name === 'BPF' && hasCapability(CAP.SYS_ADMIN)),
  );
  if (absent.length > 0) return `the xdp link needs the capability ${absent.map((name) => `CAP_${name}`).join(', ')}`;
  // The kernel requires CAP_BPF in the initial user namespace, whose uid map covers all 32 bits.
  const map = readFileSync('/proc/self/uid_map', 'latin1').trim().split(/\s+/);
  return map[2] === '4294967295' ? undefined : 'XDP programs cannot be attached from within a user namespace';
}

function hasCapability(bit: bigint): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? '0';
  return ((BigInt(`0x${effective}`) >> bit) & 1n) === 1n;
}
