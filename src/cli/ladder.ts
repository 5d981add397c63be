/** `wasm-roce ladder`: shows a capture as a page. */
import { writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import { analyse, ladderPage, readCapture } from '../probe.js';
import { CliError, EXIT_HELP, Exit } from './exit.js';
import { Output } from './output.js';

/** The link type of Ethernet in captures. */
const ETHERNET = 1;

export function ladderCommand(program: Command): void {
  program
    .command('ladder')
    .summary('show a capture as a page: packets as arrows, with what went wrong')
    .description(
      'Writes one HTML page from a capture of RoCEv2 (pcap or pcapng, gzipped or not). The page needs no network. It ' +
        'shows both ends and the packets between them, finds and explains retransmissions, NAKs, gaps and ' +
        'duplicates, and plots PSNs and goodput over time.',
    )
    .argument('<capture>', 'file of packets, from tcpdump, Wireshark or the option --pcap of other commands')
    .option('-o, --output <file>', 'the page to write; default: the name of the capture with .html')
    .option('--json', 'print a JSON object about the capture')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce ladder capture.pcapng
  wasm-roce ladder capture.pcap.gz -o ladder.html
${EXIT_HELP}`,
    )
    .action((capture: string, { output, json }: { output?: string; json?: boolean }) => {
      const path = output ?? `${capture.replace(/(\.pcap(ng)?)?(\.gz)?$/, '')}.html`;
      const ladder = analyse(read(capture));
      if (ladder.packets.length === 0)
        throw new CliError(Exit.FAILED, `${capture} has no RoCEv2 packets; ${ladder.skipped} packets are others`);
      try {
        writeFileSync(path, ladderPage(ladder, capture));
      } catch (cause) {
        throw new CliError(Exit.ENVIRONMENT, `${path} cannot be written: ${(cause as Error).message}`, { cause });
      }
      const { connections, packets, skipped } = ladder;
      const troubles = connections.reduce((sum, connection) => sum + connection.troubles, 0);
      const report = { page: path, packets: packets.length, skipped, connections: connections.length, troubles };
      const out = new Output(json ?? false);
      out.line(`${path}: ${packets.length} packets of ${connections.length} connections, ${troubles} with trouble`);
      out.result(report);
    });
}

function read(path: string) {
  try {
    const capture = readCapture(path);
    if (capture.linkType !== ETHERNET)
      throw new RangeError(`it has link type ${capture.linkType}, must be ${ETHERNET} (Ethernet)`);
    return capture.packets;
  } catch (cause) {
    throw new CliError(Exit.FAILED, `${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
}
