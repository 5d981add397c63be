/** `wasm-roce demo`: two cards do everything that they can, and every byte is looked at. */
import type { Command } from 'commander';
import { Option } from 'commander';
import { createMemoryHub, listDevices } from '../index.js';
import { type Row, runActive } from './demo/active.js';
import type { Tale, Task } from './demo/card.js';
import { type Isolation, isolation, startCard } from './demo/namespaces.js';
import type { Operation } from './demo/operation.js';
import { createPassive } from './demo/passive.js';
import { tableOf } from './demo/table.js';
import { CliError, EXIT_HELP, Exit, exitOf, failure, usageError } from './exit.js';
import { type HostLinkKind, modeOption } from './options.js';
import { Output, sizeText } from './output.js';

type LinkKind = HostLinkKind | 'memory';

interface Choice {
  readonly link?: LinkKind;
  readonly mode?: 'inline' | 'worker';
}

/** Where the two cards are, and why not elsewhere. */
interface Place {
  readonly kind: 'namespaces' | 'process';
  readonly reason: string;
}

const HELP = `
Where it is allowed the cards are in two network namespaces that a veth pair joins; nothing of them outlives the
command, however it ends. Elsewhere both are in this process, on the memory link; the first line says why.

Latency is from posting to the completion, of SEND ping-pong to that of the answer; Gbit/s count payload, of SEND
ping-pong both ways. Retransmits are packets that either end has sent again.

Examples:
  wasm-roce demo
  wasm-roce demo --link memory
  wasm-roce demo --json | jq '.rows[] | [.operation, .size, .latency.median]'
${EXIT_HELP}`;

export function demoCommand(program: Command): void {
  program
    .command('demo')
    .summary('two cards, every operation, every byte verified')
    .description(
      'Connects two cards, runs SEND ping-pong, RDMA WRITE, RDMA READ and both atomics between them, verifies every ' +
        'byte, and prints what it took.',
    )
    .addOption(
      new Option('--link <kind>', 'only this link')
        .choices(['packet', 'udp', 'xdp', 'memory'])
        .default(undefined, 'packet and udp'),
    )
    .addOption(modeOption())
    .option('--json', 'print one JSON object and nothing else')
    .addHelpText('after', HELP)
    .action(({ json = false, ...choice }: Choice & { json?: boolean }) => demo(choice, new Output(json)));
}

async function demo(choice: Choice, output: Output): Promise<void> {
  const start = performance.now();
  const rows: Row[] = [];
  const onBegin = (kind: string, { name, size }: Operation) =>
    output.progress(() => `${kind} link: ${name}, ${sizeText(size)} ...`);
  const place = await run(choice, {
    onBegin,
    onRow: (row) => rows.push(row),
    onPlace: ({ reason }) => output.line(reason),
  });
  const seconds = (performance.now() - start) / 1000;
  const wrong = rows.filter((row) => row.wrong !== '');
  output.result({ ok: wrong.length === 0, place, seconds, rows });
  output.line(tableOf(rows));
  const bytes = rows.reduce((sum, { verifiedBytes }) => sum + verifiedBytes, 0);
  output.line(`${(bytes / 2 ** 20).toFixed(0)} MiB verified byte by byte, ${seconds.toFixed(1)} s in all`);
  if (wrong.length === 0) return;
  const [first] = wrong as [Row];
  throw failure(`${first.operation} of ${first.size} bytes on ${first.link}: ${first.wrong}`, { isReported: true });
}

interface Listener {
  readonly onPlace: (place: Place) => void;
  readonly onBegin: (link: string, operation: Operation) => void;
  readonly onRow: (row: Row) => void;
}

async function run({ link, mode = 'inline' }: Choice, listener: Listener): Promise<Place> {
  if (link === 'memory' && mode === 'worker') throw usageError('--link memory works in one thread: no --mode worker');
  const { reason, flags } = possible(link);
  const links = link ? [link] : ['packet', 'udp'];
  const unavailable = flags ? await inNamespaces(flags, { links, mode } as Task, listener) : reason;
  if (unavailable === '') return NAMESPACES;
  if (mode === 'worker')
    throw new CliError(Exit.ENVIRONMENT, `no network namespaces, which --mode worker needs here: ${unavailable}`);
  // Asked for by name, a link is not replaced by another.
  if (link !== undefined && link !== 'memory')
    throw new CliError(Exit.ENVIRONMENT, `no network namespaces for the ${link} link: ${unavailable}`);
  const place = { kind: 'process', reason: `two cards in this process, on the memory link: ${unavailable}` } as const;
  listener.onPlace(place);
  await inProcess(listener);
  return place;
}

function possible(link: LinkKind | undefined): Isolation {
  if (link === 'memory') return { reason: '--link memory asks for it' };
  const { capabilities } = listDevices();
  return capabilities.addon ? isolation() : { reason: 'the native addon is not built, which other links need' };
}

const NAMESPACES: Place = {
  kind: 'namespaces',
  reason: 'two cards in two network namespaces, joined by a veth pair',
};

/** @returns why that is not possible; empty when it was */
function inNamespaces(flags: readonly string[], task: Task, listener: Listener): Promise<string> {
  const child = startCard(flags, 'a');
  let hasBegun = false;
  return new Promise<string>((resolve, reject) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (status, signal) => {
      const how = `the process of card A ended early (${signal ?? `status ${status}`})`;
      if (hasBegun) reject(failure(how));
      else resolve(how);
    });
    child.on('message', (tale: Tale) => {
      if (tale.type === 'begin') {
        if (!hasBegun) listener.onPlace(NAMESPACES);
        hasBegun = true;
        listener.onBegin(tale.link, tale.operation);
      } else if (tale.type === 'row') listener.onRow(tale.row);
      else if (tale.type === 'unavailable') resolve(tale.reason);
      else if (tale.type === 'done') resolve('');
      else if (tale.type === 'failed') reject(new CliError(exitOf(tale.error), tale.error.message));
    });
    child.send(task);
  }).finally(() => child.connected && child.disconnect());
}

async function inProcess({ onBegin, onRow }: Listener): Promise<void> {
  const hub = createMemoryHub();
  // A card that spins would keep the other one from its turns.
  const options = { hub, spinMs: 0 };
  await runActive({ ...options, onBegin: (operation) => onBegin('memory', operation) }, createPassive(options), onRow);
}
