/** Which link a device gets, and why. */
import { readFileSync } from 'node:fs';
import { VerbsError } from '../errors.js';
import { type HostInterface, interfaceByAddress, interfaceByName, listInterfaces } from '../link/interfaces.js';
import type { Link } from '../link/link.js';
import { createMemoryHub, type MemoryHub, memoryLink } from '../link/memory.js';
import { PacketLink } from '../link/packet.js';
import { UdpLink } from '../link/udp.js';
import { XdpLink, type XdpOptions } from '../link/xdp.js';
import { libbpfMissing } from '../link/xdplibbpf.js';
import { programMissing } from '../link/xdpprogram.js';

export type LinkKind = 'packet' | 'udp' | 'xdp';

export interface LinkChoice {
  /** Name of a network interface, e.g. `eth0`. */
  readonly interface?: string;
  /** Local addresses to use; without them all of the interface. */
  readonly addresses?: readonly string[];
  /** Which link; without it `packet` where the process may, else `udp`. */
  readonly kind?: LinkKind;
  /** For the link `xdp`. */
  readonly xdp?: XdpOptions;
}

export interface ChosenLink {
  readonly link: Link;
  /** What was chosen and why, for people. */
  readonly notes: readonly string[];
}

let commonHub: MemoryHub | undefined;

/**
 * Opens a link to the other cards of a hub; without a hub, to those of this process that name none either.
 * @param addresses default: the first free of `10.0.0.n` with `fd00::n` and `fe80::n`
 * @throws VerbsError EADDRINUSE
 */
export function openMemoryLink(hub: MemoryHub | undefined, addresses: readonly string[] | undefined): ChosenLink {
  commonHub ??= createMemoryHub();
  const on = hub ?? commonHub;
  let n = 1;
  while (on.owner(`10.0.0.${n}`) !== undefined) n++;
  return {
    link: memoryLink(on, {
      addresses: addresses ?? [`10.0.0.${n}`, `fd00::${n.toString(16)}`, `fe80::${n.toString(16)}`],
    }),
    notes: [hub ? 'the memory link: cards of one hub in this process' : 'the memory link: cards of this process'],
  };
}

/** Bits in the kernel's capability sets (capabilities(7)). */
const CAP = { NET_ADMIN: 12n, NET_RAW: 13n, SYS_ADMIN: 21n, BPF: 39n } as const;

/**
 * Opens a link on a network interface of this host.
 * @throws VerbsError ENODEV, EADDRNOTAVAIL, EADDRINUSE, EPERM, EOPNOTSUPP as the links do
 */
export function openHostLink(choice: LinkChoice): ChosenLink {
  const { addresses } = choice;
  const notes: string[] = [];
  const end = chooseEnd(choice, notes);
  const where = { interface: end.name, ...(addresses && { addresses }) };
  const kind = choice.kind ?? preferred(end, notes);
  if (kind === 'udp') return { link: UdpLink.open(where), notes };
  return { link: kind === 'packet' ? PacketLink.open(where) : XdpLink.open({ ...where, ...choice.xdp }), notes };
}

function preferred(end: HostInterface, notes: string[]): PreferredKind {
  const { kind, reason } = preferredLink(end);
  notes.push(`the ${kind} link, because ${reason}`);
  return kind;
}

/** `xdp` has the interface's queues to itself, so only who wants its latency gets it. */
type PreferredKind = Exclude<LinkKind, 'xdp'>;

/** The link that an interface gets when none is asked for, and why. */
export function preferredLink(end: HostInterface): { readonly kind: PreferredKind; readonly reason: string } {
  if (!end.isEthernet) return { kind: 'udp', reason: `${end.name} does not carry Ethernet frames` };
  if (!mayUsePacketSockets())
    return { kind: 'udp', reason: 'packet sockets need the capability CAP_NET_RAW, which this process has not' };
  return { kind: 'packet', reason: 'this process has the capability CAP_NET_RAW' };
}

function chooseEnd({ interface: name, addresses }: LinkChoice, notes: string[]): HostInterface {
  if (name !== undefined) return interfaceByName(name);
  const address = addresses?.[0];
  if (address !== undefined) return interfaceByAddress(address);
  const all = listInterfaces();
  const usable = all.filter(({ up, addresses }) => up && addresses.length > 0);
  const found = usable.find(({ isLoopback }) => !isLoopback) ?? usable[0];
  if (found === undefined)
    throw new VerbsError('ENODEV', `no network interface is up and has an address (${all.map((end) => end.name)})`);
  notes.push(
    found.isLoopback
      ? `${found.name}, because no other interface is up with an address`
      : `${found.name}, the first interface that is up with an address; name another one if it is not the right one`,
  );
  return found;
}

/** Whether this process has CAP_NET_RAW in its network namespace's user namespace, as far as its own sets tell. */
export function mayUsePacketSockets(): boolean {
  return hasCapability(CAP.NET_RAW);
}

/** Why this process cannot have the xdp link on any interface, as far as can be seen; undefined when it can. */
export function xdpUnavailable(): string | undefined {
  const missing = libbpfMissing() ?? programMissing();
  if (missing !== undefined) return missing;
  const absent = (['NET_RAW', 'NET_ADMIN', 'BPF'] as const).filter(
    (name) => !hasCapability(CAP[name]) && !(name === 'BPF' && hasCapability(CAP.SYS_ADMIN)),
  );
  if (absent.length > 0) return `the xdp link needs the capability ${absent.map((name) => `CAP_${name}`).join(', ')}`;
  // The kernel asks for CAP_BPF in the first user namespace, whose map is all of 32 bits.
  const map = readFileSync('/proc/self/uid_map', 'latin1').trim().split(/\s+/);
  return map[2] === '4294967295' ? undefined : 'XDP programs cannot be attached from within a user namespace';
}

function hasCapability(bit: bigint): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? '0';
  return ((BigInt(`0x${effective}`) >> bit) & 1n) === 1n;
}
