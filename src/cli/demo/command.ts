/** `wasm-roce demo`: runs every operation between two cards, and verifies every byte. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { createMemoryHub, listDevices } from '../../index.js';
import { CliError, EXIT_HELP, Exit, exitOf, failure, usageError } from '../exit.js';
import { type HostLinkKind, modeOption } from '../options.js';
import { Output, sizeText } from '../output.js';
import { type Row, runActive } from './active.js';
import type { CardMessage, CardTask } from './card.js';
import { findIsolation, type Isolation, startCard } from './namespaces.js';
import type { Operation } from './operation.js';
import { createPassive } from './passive.js';
import { tableOf } from './table.js';

type LinkKind = HostLinkKind | 'memory';

interface DemoOptions {
  readonly link?: LinkKind;
  readonly mode?: 'inline' | 'worker';
}

/** The place where the two cards run, and its reason. */
interface Placement {
  readonly kind: 'namespaces' | 'process';
  readonly reason: string;
}

const HELP = `
Where permitted, the two cards run in two network namespaces that a veth pair connects. The kernel removes both when
the command ends, however it ends. Otherwise the cards run in this process, on the memory link; the first line says why.

Latency is the time from the post to the completion; for SEND ping-pong, to the receipt of the answer. Gbit/s is the
rate of the payload; for SEND ping-pong, of both directions. Retransmits are packets that either card has retransmitted.

Examples:
  wasm-roce demo
  wasm-roce demo --link memory
  wasm-roce demo --json | jq '.rows[] | [.operation, .size, .latency.median]'
${EXIT_HELP}`;

export function demoCommand(program: Command): void {
  program
    .command('demo')
    .summary('run every operation between two cards and verify every byte')
    .description(
      'Connects two cards, runs SEND ping-pong, RDMA WRITE, RDMA READ and both atomics between them, verifies every ' +
        'byte, and prints latency and bandwidth.',
    )
    .addOption(
      new Option('--link <kind>', 'use only this link; default: packet and udp').choices([
        'packet',
        'udp',
        'xdp',
        'memory',
      ]),
    )
    .addOption(modeOption())
    .option('--json', 'print only a JSON object')
    .addHelpText('after', HELP)
    .action(({ json = false, ...options }: DemoOptions & { json?: boolean }) => demo(options, new Output(json)));
}

async function demo(options: DemoOptions, output: Output): Promise<void> {
  const start = performance.now();
  const rows: Row[] = [];
  const onBegin = (kind: string, { name, size }: Operation) =>
    output.progress(() => `${kind} link: ${name}, ${sizeText(size)} ...`);
  const placement = await run(options, {
    onBegin,
    onRow: (row) => rows.push(row),
    onPlace: ({ reason }) => output.line(reason),
  });
  const seconds = (performance.now() - start) / 1000;
  const wrong = rows.filter((row) => row.wrong !== '');
  output.result({ ok: wrong.length === 0, place: placement, seconds, rows });
  output.line(tableOf(rows));
  const bytes = rows.reduce((sum, { verifiedBytes }) => sum + verifiedBytes, 0);
  output.line(`${(bytes / 2 ** 20).toFixed(0)} MiB verified byte by byte, ${seconds.toFixed(1)} s in all`);
  if (wrong.length === 0) return;
  const [first] = wrong as [Row];
  throw failure(`${first.operation} of ${first.size} bytes on ${first.link}: ${first.wrong}`, { isReported: true });
}

interface DemoListener {
  readonly onPlace: (placement: Placement) => void;
  readonly onBegin: (link: string, operation: Operation) => void;
  readonly onRow: (row: Row) => void;
}

async function run({ link, mode = 'inline' }: DemoOptions, listener: DemoListener): Promise<Placement> {
  if (link === 'memory' && mode === 'worker')
    throw usageError('--link memory works in one thread: it takes no --mode worker');
  const { reason, flags } = possible(link);
  const links = link ? [link] : ['packet', 'udp'];
  const unavailable = flags ? await inNamespaces(flags, { links, mode } as CardTask, listener) : reason;
  if (unavailable === '') return NAMESPACES;
  if (mode === 'worker')
    throw new CliError(Exit.ENVIRONMENT, `no network namespaces, which --mode worker needs here: ${unavailable}`);
  // A link that the user names is not replaced by another.
  if (link !== undefined && link !== 'memory')
    throw new CliError(Exit.ENVIRONMENT, `no network namespaces for the ${link} link: ${unavailable}`);
  const placement = {
    kind: 'process',
    reason: `two cards in this process, on the memory link: ${unavailable}`,
  } as const;
  listener.onPlace(placement);
  await inProcess(listener);
  return placement;
}

function possible(link: LinkKind | undefined): Isolation {
  if (link === 'memory') return { reason: '--link memory' };
  const { capabilities } = listDevices();
  return capabilities.addon ? findIsolation() : { reason: 'the native addon is not built, which other links need' };
}

const NAMESPACES: Placement = {
  kind: 'namespaces',
  reason: 'two cards in two network namespaces, connected by a veth pair',
};

/** Runs the demo in two namespaces. @returns the reason if that is not possible; empty if it was */
function inNamespaces(flags: readonly string[], task: CardTask, listener: DemoListener): Promise<string> {
  const child = startCard(flags, 'a');
  let hasBegun = false;
  return new Promise<string>((resolve, reject) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (status, signal) => {
      const how = `the process of card A ended early (${signal ?? `status ${status}`})`;
      if (hasBegun) reject(failure(how));
      else resolve(how);
    });
    child.on('message', (message: CardMessage) => {
      if (message.type === 'begin') {
        if (!hasBegun) listener.onPlace(NAMESPACES);
        hasBegun = true;
        listener.onBegin(message.link, message.operation);
      } else if (message.type === 'row') listener.onRow(message.row);
      else if (message.type === 'unavailable') resolve(message.reason);
      else if (message.type === 'done') resolve('');
      else if (message.type === 'failed') reject(new CliError(exitOf(message.error), message.error.message));
    });
    child.send(task);
  }).finally(() => child.connected && child.disconnect());
}

async function inProcess({ onBegin, onRow }: DemoListener): Promise<void> {
  const hub = createMemoryHub();
  // A card that spins would keep the other one from running.
  const options = { hub, spinMs: 0 };
  await runActive({ ...options, onBegin: (operation) => onBegin('memory', operation) }, createPassive(options), onRow);
}
