/**
 * The cable between our card and the guest, in an anonymous network namespace (`unshare --net`) that vanishes with its
 * last process:
 *
 *   our link ── card0 ══ card0p ── br0 ── tap0 ── eth0 of the guest
 *          .2      (veth)        (bridge)                .3
 */
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';

export const CARD = { interface: 'card0', ipv4: '10.77.0.2', ipv6: 'fd77::2' } as const;
export const GUEST = { tap: 'tap0', ipv4: '10.77.0.3', ipv6: 'fd77::3' } as const;

/** Returns addresses in the format of `ip address add` and Guest.start. */
export function addressesOf(end: { readonly ipv4: string; readonly ipv6: string }): string[] {
  return [`${end.ipv4}/24`, `${end.ipv6}/64`];
}

/** Returns why the topology cannot be created here, for the name of a skipped test; undefined when it can. */
export function networkUnavailable(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root for network interfaces';
  if (!existsSync('/usr/bin/ip') && !existsSync('/usr/sbin/ip') && !existsSync('/sbin/ip'))
    return 'needs the package iproute2';
  const foreign = Object.keys(networkInterfaces()).filter((name) => name !== 'lo' && name !== CARD.interface);
  if (foreign.length > 0) return `needs a network namespace without ${foreign.join(', ')}: run under unshare --net`;
  return undefined;
}

export class InteropNetwork implements Disposable {
  /** Counts the networks of this process, of which each replaces the one before. */
  static readonly #KEY = Symbol.for('wasm-roce interop networks');
  readonly #number: number;

  /**
   * Creates the interfaces, sets them up, and adds our addresses.
   * @param mtu MTU of every interface in bytes
   * @param hasTap whether the guest is behind a tap interface; else `plugNamespace` plugs it
   * @throws Error when this network namespace is not private, or `ip` fails
   */
  constructor(mtu = 1500, { hasTap = true } = {}) {
    const reason = networkUnavailable();
    if (reason) throw new Error(`interop network ${reason}`);
    this.#number = InteropNetwork.#count() + 1;
    Reflect.set(globalThis, InteropNetwork.#KEY, this.#number);
    this.close();
    // Nobody else uses these addresses, so duplicate address detection is not needed.
    for (const scope of ['all', 'default']) writeFileSync(`/proc/sys/net/ipv6/conf/${scope}/accept_dad`, '0');
    ip('link set lo up');
    ip('link add br0 type bridge forward_delay 0 mcast_snooping 0');
    if (hasTap) ip(`tuntap add dev ${GUEST.tap} mode tap`);
    // Linux answers ARP for all its addresses on every interface, so the guest would send our frames to the bridge.
    ip('link set br0 arp off');
    if (hasTap) ip(`link set ${GUEST.tap} master br0`);
    this.plug(mtu);
  }

  /** Creates eth0 in the network namespace of a process, and its cable to the bridge, which ends with the namespace. */
  plugNamespace(pid: number, mtu: number): void {
    ip(`link add ${GUEST.tap} type veth peer name eth0 netns ${pid}`);
    ip(`link set ${GUEST.tap} mtu ${mtu} addrgenmode none`);
    ip(`link set ${GUEST.tap} master br0 up`);
  }

  /** Whether no later network has replaced this one. */
  get isCurrent(): boolean {
    return this.#number === InteropNetwork.#count();
  }

  static #count(): number {
    return Reflect.get(globalThis, InteropNetwork.#KEY) ?? 0;
  }

  /** Creates our interface and its cable to the bridge. @param mtu MTU of every interface in bytes */
  plug(mtu: number): void {
    ip(`link add ${CARD.interface} type veth peer name card0p`);
    ip('link set card0p master br0');
    // The bridge and its ports only forward frames: no addresses, no neighbour discovery of their own.
    const forwarding = ['card0p', GUEST.tap, 'br0'].filter(exists);
    for (const name of forwarding) ip(`link set ${name} mtu ${mtu} addrgenmode none`);
    ip(`link set ${CARD.interface} mtu ${mtu}`);
    for (const address of addressesOf(CARD)) ip(`address add ${address} dev ${CARD.interface}`);
    for (const name of [...forwarding, CARD.interface]) ip(`link set ${name} up`);
  }

  /** Sets our interface up, which a test has set down. */
  raise(): void {
    ip(`link set ${CARD.interface} up`);
  }

  /** Removes our interface, until plug. The guest keeps its own. */
  unplug(): void {
    remove(CARD.interface);
  }

  /** Removes the interfaces. */
  close(): void {
    for (const name of ['br0', CARD.interface, GUEST.tap]) remove(name);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

const exists = (name: string): boolean => existsSync(`/proc/sys/net/ipv4/conf/${name}`);

function remove(name: string): void {
  if (exists(name)) ip(`link delete ${name}`);
}

function ip(command: string): void {
  execFileSync('ip', command.split(' '), { stdio: ['ignore', 'ignore', 'pipe'] });
}
