/** The packets of a run as pcapng, with comments: for Wireshark, and for `wasm-roce ladder`. */
import { Direction, PcapngWriter } from '../../link/pcapng.js';
import { captured, ladderOf } from './figures.js';
import { type Outcome, outcomes, type ProbeRun } from './run.js';

/**
 * Returns a pcapng file with a section for each check that has packets. The comment of a section says what the check
 * is, sends, expects and found. The first packet has the check's title as a comment, the last one its verdict, and
 * packets between them have what is unusual about them.
 * @param only names of checks; default: all
 * @throws RangeError when a result is of none of the checks
 */
export function probeCapture(run: ProbeRun, only?: readonly string[]): Uint8Array {
  const all = outcomes(run);
  const starts = all.flatMap(({ result: { evidence } }) => evidence[0]?.at ?? []);
  const start = Math.min(...starts);
  const epoch = BigInt(run.date.getTime()) * 1_000_000n;
  const writer = new PcapngWriter();
  // a file without a section is no pcapng file
  if (starts.length === 0) writer.header(`wasm-roce ${run.version}`, `probe of ${run.peer}: no check has packets`, '');
  for (const outcome of all) {
    const [first] = outcome.result.evidence;
    if (first === undefined || (only && !only.includes(outcome.check.name))) continue;
    section(writer, run, outcome, epoch + BigInt(Math.round(first.at - start)));
  }
  return writer.take().slice();
}

function section(writer: PcapngWriter, run: ProbeRun, { check, result }: Outcome, epoch: bigint): void {
  const { number, name, title, clause, sends, expects } = check;
  const { verdict, text, evidence } = result;
  const found = text === '' ? verdict : `${verdict}: ${text}`;
  const about = [
    `check ${number} ${name} of ${run.peer}: ${title} (${clause})`,
    `sends: ${sends}`,
    `expects: ${expects}`,
    `found: ${found}`,
  ];
  writer.header(`wasm-roce ${run.version}`, about.join('\n'), run.links.map((link) => link.interface).join(', '));
  const packets = captured(evidence, epoch);
  const notes = new Map(ladderOf(evidence).packets.map((packet) => [packet.number, packet.note]));
  for (const [i, { time, data, direction }] of packets.entries()) {
    const comment = [
      i === 0 ? `check ${number} ${name}: ${title}` : '',
      notes.get(i + 1) ?? '',
      i === packets.length - 1 ? found : '',
    ].filter((line) => line !== '');
    writer.packet(
      time,
      direction === 1 ? Direction.Inbound : Direction.Outbound,
      data,
      comment.length > 0 ? Buffer.from(comment.join('\n')) : undefined,
    );
  }
}
