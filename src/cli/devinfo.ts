/** `wasm-roce devinfo`: what this host offers for a device. */
import Table from 'cli-table3';
import type { Command } from 'commander';
import { type DeviceInfo, type HostDevice, type HostDevices, listDevices, openDevice } from '../index.js';
import { CliError, EXIT_HELP, Exit } from './exit.js';
import { Output } from './output.js';

export function devinfoCommand(program: Command): void {
  program
    .command('devinfo')
    .summary('network interfaces as RDMA devices: GIDs, MTUs, links, limits')
    .description(
      'Shows each network interface as the device that would be opened on it: state, path MTU, GID table, the link that ' +
        'would be chosen and why; the limits of the card; and what is missing on this machine. Needs no privileges.',
    )
    .argument('[interface]', 'only this interface')
    .option('--json', 'print one JSON object and nothing else')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce devinfo
  wasm-roce devinfo eth0 --json | jq '.interfaces[0].gids'
${EXIT_HELP}`,
    )
    .action((name: string | undefined, { json = false }: { json?: boolean }) => devinfo(name, new Output(json)));
}

type Limits = Omit<DeviceInfo, 'name' | 'nodeGuid' | 'link' | 'memoryAvailable'>;

async function devinfo(name: string | undefined, output: Output): Promise<void> {
  const { interfaces, capabilities, notes } = chosen(name, listDevices());
  const limits = await cardLimits();
  output.result({ interfaces, capabilities, limits, notes });
  for (const end of interfaces) output.line(describeInterface(end));
  output.line(describeLimits(limits));
  output.line();
  output.line('capabilities');
  output.line(`  native addon   ${capabilities.addon ? 'loads' : 'MISSING: only the memory link works'}`);
  output.line(`  CAP_NET_RAW    ${capabilities.netRaw ? 'present' : 'MISSING: no packet link'}`);
  output.line(`  for link xdp   ${capabilities.xdp ? 'all that it needs' : 'MISSING: see below'}`);
  if (notes.length > 0) output.line('notes');
  for (const note of notes) output.line(`  ${note}`);
}

function chosen(name: string | undefined, found: HostDevices): HostDevices {
  if (name === undefined) return found;
  const interfaces = found.interfaces.filter((end) => end.interface === name);
  if (interfaces.length > 0) return { ...found, interfaces };
  const names = found.interfaces.map((end) => end.interface).join(', ') || 'none';
  throw new CliError(Exit.ENVIRONMENT, `there is no interface '${name}'; there is ${names}`);
}

/** They are the same on every link, so the one that needs nothing tells them. */
async function cardLimits(): Promise<Limits> {
  await using device = await openDevice({ link: 'memory' });
  const { name: _name, nodeGuid: _guid, link: _link, memoryAvailable: _available, ...limits } = device.query();
  return limits;
}

function describeInterface(end: HostDevice): string {
  const mtu =
    end.interfaceMtu === 0
      ? 'not known'
      : `${end.interfaceMtu} -> path MTU ${end.activeMtu > 0 ? `up to ${end.activeMtu}` : 'none: too small'}`;
  const lines = [
    `${end.interface}`,
    `  state     ${end.state}`,
    `  MAC       ${end.mac}`,
    `  MTU       ${mtu}`,
    `  link      ${end.link ? `${end.link.kind}, because ${end.link.reason}` : `none: ${end.gids.length > 0 ? 'the native addon is missing' : 'it has no IP address'}`}`,
  ];
  if (end.xdp) lines.push(`  xdp       ${describeXdp(end)}`);
  if (end.gid) lines.push(`  told GID  ${end.gid.index}: ${end.gid.reason}`);
  if (end.gids.length > 0) lines.push(gidTable(end));
  return `${lines.join('\n')}\n`;
}

function describeXdp({ xdp, xdpProgram }: HostDevice): string {
  const words = [
    xdp?.isNative ? 'native' : 'generic mode only',
    xdp?.zeroCopy ? 'zero copy' : 'no zero copy',
    xdp?.multiBuffer || !xdp?.isNative ? 'any MTU' : 'no frames beyond a page in native mode',
  ];
  if (xdpProgram) words.push(`program ${xdpProgram.id} runs in ${xdpProgram.mode} mode`);
  return words.join(', ');
}

function gidTable(end: HostDevice): string {
  const table = new Table({
    head: ['index', 'GID', 'type', 'address'],
    style: { head: [], border: [], compact: true },
    chars: PLAIN,
  });
  for (const { index, gid, type, address } of end.gids) table.push([index, gid, type, address]);
  return indent(table.toString());
}

function describeLimits(limits: Limits): string {
  const rows = Object.entries(limits).map(([name, value]) => `  ${name.padEnd(16)} ${value}`);
  return ['limits of a card', ...rows].join('\n');
}

const indent = (text: string) => text.replace(/^/gm, '  ');

/** A table without lines. */
const PLAIN = Object.fromEntries(
  [
    'top top-mid top-left top-right bottom bottom-mid bottom-left bottom-right',
    'left left-mid mid mid-mid right right-mid middle',
  ]
    .join(' ')
    .split(' ')
    .map((name) => [name, '']),
);
