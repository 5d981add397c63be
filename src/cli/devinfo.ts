/** `wasm-roce devinfo`: shows the network interfaces of this host as RDMA devices. */
import Table from 'cli-table3';
import type { Command } from 'commander';
import { type DeviceInfo, type HostDevice, type HostDevices, listDevices, openDevice } from '../index.js';
import { CliError, EXIT_HELP, Exit } from './exit.js';
import { Output, PLAIN_TABLE, styled } from './output.js';
import { firewall, type Obstacle, obstaclesOn } from './preflight.js';

export function devinfoCommand(program: Command): void {
  program
    .command('devinfo')
    .summary('show network interfaces as RDMA devices: GIDs, MTUs, links, limits')
    .description(
      'Shows the device that would be opened on each network interface: its state, path MTU and GID table, and the link ' +
        'that would be chosen, with the reason, and what may take packets away from it: RoCE in hardware, XDP programs, a ' +
        'firewall. Also shows the limits of the card and what this machine lacks. Needs no ' +
        'privileges.',
    )
    .argument('[interface]', 'show only this interface')
    .option('--json', 'print only a JSON object')
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
  const { interfaces: ends, capabilities, notes } = chosen(name, listDevices());
  const interfaces = ends.map((end) => ({ ...end, obstacles: obstaclesOn(end) }));
  const limits = await cardLimits();
  const rules = firewall();
  output.result({ interfaces, capabilities, firewall: rules, limits, notes });
  for (const end of interfaces) output.line(describeInterface(end));
  output.line(describeLimits(limits));
  output.line();
  output.line('capabilities');
  output.line(`  native addon   ${capabilities.addon ? 'loads' : `${missing()}: only the memory link works`}`);
  output.line(`  CAP_NET_RAW    ${capabilities.netRaw ? 'present' : `${missing()}: no packet link`}`);
  output.line(`  xdp link       ${capabilities.xdp ? 'available' : `${missing()}: see the notes`}`);
  output.line(`  firewall       ${rules.text}`);
  if (notes.length > 0) output.line('notes');
  for (const note of notes) output.line(`  ${note}`);
}

function chosen(name: string | undefined, found: HostDevices): HostDevices {
  if (name === undefined) return found;
  const interfaces = found.interfaces.filter((end) => end.interface === name);
  if (interfaces.length > 0) return { ...found, interfaces };
  const names = found.interfaces.map((end) => end.interface).join(', ') || 'none';
  throw new CliError(Exit.ENVIRONMENT, `there is no interface '${name}'; interfaces: ${names}`);
}

/** Returns the limits of a card. They are the same on every link; the memory link needs no privileges. */
async function cardLimits(): Promise<Limits> {
  await using device = await openDevice({ link: 'memory' });
  const { name: _name, nodeGuid: _guid, link: _link, memoryAvailable: _available, ...limits } = device.query();
  return limits;
}

function describeInterface(end: HostDevice & { readonly obstacles: readonly Obstacle[] }): string {
  const mtu =
    end.interfaceMtu === 0
      ? 'not known'
      : `${end.interfaceMtu} -> path MTU ${end.activeMtu > 0 ? `up to ${end.activeMtu}` : 'none: too small'}`;
  const lines = [
    styled('bold', end.interface),
    `  state     ${end.state}`,
    `  MAC       ${end.mac}`,
    `  MTU       ${mtu}`,
    `  link      ${end.link ? `${end.link.kind}, because ${end.link.reason}` : `none: ${end.gids.length > 0 ? 'the native addon is missing' : 'it has no IP address'}`}`,
  ];
  if (end.xdp) lines.push(`  xdp       ${describeXdp(end)}`);
  for (const { text } of end.obstacles) lines.push(`  ${styled('yellow', 'obstacle')}  ${text}`);
  if (end.gid) lines.push(`  GID       ${end.gid.index}: ${end.gid.reason}`);
  if (end.gids.length > 0) lines.push(gidTable(end));
  return `${lines.join('\n')}\n`;
}

function describeXdp({ xdp, xdpProgram }: HostDevice): string {
  const words = [
    xdp?.isNative ? 'native' : 'generic mode only',
    xdp?.zeroCopy ? 'zero copy' : 'no zero copy',
    xdp?.multiBuffer || !xdp?.isNative ? 'any MTU' : 'frames of at most one page in native mode',
  ];
  if (xdpProgram) words.push(`program ${xdpProgram.id} runs in ${xdpProgram.mode} mode`);
  return words.join(', ');
}

function gidTable(end: HostDevice): string {
  const table = new Table({
    head: ['index', 'GID', 'type', 'address'].map((title) => styled('bold', title)),
    style: { head: [], border: [], compact: true },
    chars: PLAIN_TABLE,
  });
  for (const { index, gid, type, address } of end.gids) table.push([index, gid, type, address]);
  return indent(table.toString());
}

function describeLimits(limits: Limits): string {
  const rows = Object.entries(limits).map(([name, value]) => `  ${name.padEnd(16)} ${value}`);
  return ['limits of a card', ...rows].join('\n');
}

const missing = () => styled('red', 'MISSING');
const indent = (text: string) => text.replace(/^/gm, '  ');
