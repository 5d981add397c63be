/** Programs and rules of this host that may take RoCE packets before a link sees them, as files of the kernel tell. */
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { HostDevice } from '../index.js';

/** Something that may keep packets away, and what to do about it. */
export interface Obstacle {
  readonly kind: 'hardware RoCE' | 'XDP program';
  readonly text: string;
}

/** Whether a firewall may drop packets of the udp link; packet and xdp links receive before it. */
export interface Firewall {
  readonly state: 'none' | 'possible' | 'unknown';
  readonly text: string;
}

/**
 * Returns what may keep packets from the links on an interface.
 * @param sys mount point of sysfs
 */
export function obstaclesOn(end: Pick<HostDevice, 'interface' | 'xdpProgram'>, sys = '/sys'): Obstacle[] {
  const { interface: name, xdpProgram: program } = end;
  const adapters = entries(join(sys, 'class/net', name, 'device/infiniband')).filter((adapter) =>
    mayTakeRoce(join(sys, 'class/infiniband', adapter), name),
  );
  const hardware = adapters.map((adapter): Obstacle => {
    const device = `pci/${deviceOf(sys, name)}`;
    const command = `devlink dev param set ${device} name enable_roce value false cmode driverinit; devlink dev reload ${device}`;
    return {
      kind: 'hardware RoCE',
      text: `the adapter's own RoCE (${adapter}) takes UDP port 4791 before the kernel sees it; to disable it: ${command}`,
    };
  });
  const xdp: Obstacle = {
    kind: 'XDP program',
    text:
      `XDP program ${program?.id} sees packets first; unless it belongs to an xdp link of ours it may drop them: ` +
      `bpftool prog show id ${program?.id}`,
  };
  return [...hardware, ...(program ? [xdp] : [])];
}

/** Whether an adapter has a RoCE v2 GID of the interface, or does not say what GIDs it has. */
function mayTakeRoce(adapter: string, name: string): boolean {
  const gids = entries(join(adapter, 'ports')).flatMap((port) => {
    const folder = join(adapter, 'ports', port, 'gid_attrs');
    return entries(join(folder, 'types')).map((index) => ({
      type: content(join(folder, 'types', index)),
      interface: content(join(folder, 'ndevs', index)),
    }));
  });
  return gids.length === 0 || gids.some((gid) => gid.type === 'RoCE v2' && gid.interface === name);
}

function deviceOf(sys: string, name: string): string {
  try {
    return basename(realpathSync(join(sys, 'class/net', name, 'device')));
  } catch {
    return 'DEVICE';
  }
}

/**
 * Returns whether a firewall is loaded. Its rules are not read: that needs privileges, and evaluating them the kernel.
 * @param proc mount point of procfs
 */
export function firewall(proc = '/proc'): Firewall {
  const tables = ['ip_tables_names', 'ip6_tables_names'].map((file) => tablesIn(join(proc, 'net', file)));
  const modules = content(join(proc, 'modules'));
  const found = [
    ...(tables.some((names) => names?.includes('filter') || names?.includes('raw')) ? ['iptables'] : []),
    ...(/^nf_tables /m.test(modules ?? '') ? ['nftables'] : []),
  ];
  if (found.length > 0)
    return {
      state: 'possible',
      text:
        `${found.join(' and ')} loaded; cannot tell whether a rule drops UDP port 4791 on the udp link: ` +
        `${found.map((name) => (name === 'nftables' ? 'nft list ruleset' : 'iptables -S')).join('; ')}`,
    };
  // nftables may be built into the kernel, which leaves no trace that every user can read
  if (tables.includes(undefined) || modules === undefined || modules === '')
    return { state: 'unknown', text: 'cannot tell: the kernel does not say here which rules are loaded' };
  return { state: 'none', text: 'no iptables filter and no nftables module loaded' };
}

/** The loaded tables; none without the file, which iptables brings; undefined if it must not be read. */
function tablesIn(file: string): readonly string[] | undefined {
  try {
    return readFileSync(file, 'utf8').split('\n');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? [] : undefined;
  }
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** The text of a file, without the end of the line. An unused GID has none: reading it fails. */
function content(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trimEnd();
  } catch {
    return undefined;
  }
}
