/** `wasm-roce ladder`: shows a capture as a page. */
import { writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import {
  aboutText,
  analyse,
  type Capture,
  connectionText,
  ladderFindings,
  ladderPage,
  readCapture,
  selectLadder,
} from '../probe.js';
import { CliError, EXIT_HELP, Exit } from './exit.js';
import { integer, quantity } from './options.js';
import { Output } from './output.js';

/** Connections that the text names. */
const NAMED = 10;
const MAX_QPN = 0xffffff;
const MAX_SECONDS = 1e9;

interface Flags {
  readonly output?: string;
  readonly qp?: number;
  readonly from?: number;
  readonly to?: number;
  readonly json?: boolean;
}

export function ladderCommand(program: Command): void {
  program
    .command('ladder')
    .summary('show a capture as a page: packets as arrows, with what went wrong')
    .description(
      'Writes one HTML page from a capture of RoCEv2 (pcap or pcapng, compressed with gzip or zstd or not). The page ' +
        'needs no network. It shows both ends and the packets between them, finds and explains retransmissions, NAKs, ' +
        'gaps and duplicates, and plots PSNs and goodput over time. Packets are found behind VLAN tags, MPLS, VXLAN, ' +
        'GENEVE, GRE and ERSPAN too, and may be cut by a snap length.',
    )
    .argument('<capture>', 'file of packets, from tcpdump, Wireshark or the option --pcap of other commands')
    .option('-o, --output <file>', 'the page to write; default: the name of the capture with .html')
    .option('--qp <number>', 'show only connections with this queue pair number', integer(0, MAX_QPN))
    .option('--from <seconds>', 'show only packets from this time on, since the first packet', quantity(MAX_SECONDS))
    .option('--to <seconds>', 'show only packets up to this time, since the first packet', quantity(MAX_SECONDS))
    .option('--json', 'print a JSON object with all connections and all that is unusual about their packets')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce ladder capture.pcapng
  wasm-roce ladder capture.pcap.gz -o ladder.html
  wasm-roce ladder capture.pcap --qp 0x11 --from 1.5 --to 2
${EXIT_HELP}`,
    )
    .action((capture: string, flags: Flags) => show(capture, flags));
}

function show(capture: string, { output, qp, from, to, json }: Flags): void {
  if (from !== undefined && to !== undefined && from > to)
    throw new CliError(Exit.USAGE, `--from ${from} must not be after --to ${to}`);
  const out = new Output(json ?? false);
  const path = output ?? `${capture.replace(/(\.pcap(ng)?)?(\.gz|\.zst)?$/, '')}.html`;
  const { packets: captured, remarks } = read(capture);
  for (const remark of remarks) out.note(`${capture}: ${remark}`);
  const whole = analyse(captured);
  if (whole.packets.length === 0)
    throw new CliError(
      Exit.FAILED,
      `${capture} has no RoCEv2 packets; ${whole.skipped} packets are others, or are cut before the end of their BTH`,
    );
  const ladder = selectLadder(whole, {
    ...(qp !== undefined && { qp }),
    ...(from !== undefined && { from: from * 1e9 }),
    ...(to !== undefined && { to: to * 1e9 }),
  });
  if (ladder.packets.length === 0)
    throw new CliError(
      Exit.FAILED,
      `none of the ${whole.packets.length} RoCEv2 packets is what --qp, --from and --to ask for`,
    );
  try {
    writeFileSync(path, ladderPage(ladder, capture));
  } catch (cause) {
    throw new CliError(Exit.ENVIRONMENT, `${path} cannot be written: ${(cause as Error).message}`, { cause });
  }
  const connections = ladderFindings(ladder);
  const { packets, skipped } = ladder;
  const troubles = connections.reduce((sum, connection) => sum + connection.troubles, 0);
  out.line(`${path}: ${packets.length} packets of ${connections.length} connections, ${troubles} with trouble`);
  for (const connection of connections.slice(0, NAMED))
    out.line(`  ${connectionText(connection)}: ${connection.packets} packets, ${connection.troubles} with trouble`);
  if (connections.length > NAMED) out.line(`  and ${connections.length - NAMED} more with less trouble`);
  out.result({
    ...{ page: path, packets: packets.length, skipped, troubles, remarks },
    connections: connections.map((connection) => ({ ...connection, about: aboutText(connection) })),
  });
}

function read(path: string): Capture {
  try {
    return readCapture(path);
  } catch (cause) {
    throw new CliError(Exit.FAILED, `${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
}
