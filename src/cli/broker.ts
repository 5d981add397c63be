/** `wasm-roce broker`: serves the programs of a network namespace that share addresses. */
import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError } from 'commander';
import { Broker, isOwnerOrRoot } from '../broker/broker.js';
import { EXIT_HELP, stopSignal } from './exit.js';
import { quantity } from './options.js';
import { Output } from './output.js';

interface Flags {
  readonly idle?: number;
  readonly allow: readonly number[];
  readonly allowGroup: readonly number[];
  readonly quiet?: boolean;
}

const HELP = `
Programs share the addresses of this host unless WASM_ROCE_BROKER is off, and start a broker when they find none. So
this command is for those that choose who may use it, or run it as a service. The broker has no part in the traffic.
When it ends, the programs keep their connections, and start another one. It takes the socket of systemd
(wasm-roce-broker.socket in the package).

A user who is allowed can read and disturb the RDMA traffic of all programs of these addresses. Root always is.

Examples:
  wasm-roce broker                             for the programs of this user
  wasm-roce broker --allow alice --allow bob   also for those of these users
  wasm-roce broker --allow-group rdma          also for those whose process has this group
${EXIT_HELP.replace('0 done', '0 stopped')}`;

/** Reads a file of accounts: the name is the first field, the number the third (passwd(5), group(5)). */
function idOf(file: string, what: string): (text: string, before: readonly number[]) => readonly number[] {
  return (text, before) => {
    if (/^\d{1,10}$/.test(text)) return [...before, Number(text)];
    const entry = readFileSync(file, 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
      .find(([name]) => name === text);
    if (entry === undefined) throw new InvalidArgumentError(`There is no ${what} '${text}' in ${file}.`);
    return [...before, Number(entry[2])];
  };
}

export function brokerCommand(program: Command): void {
  program
    .command('broker')
    .summary('let programs share the addresses of this host')
    .description(
      'Lends the programs of this network namespace sockets of UDP port 4791, so that several of them use one address.',
    )
    .option('--idle <s>', 'end after so many seconds without a program', quantity(86_400))
    .option('--allow <user>', 'user whose programs may use it, by name or number', idOf('/etc/passwd', 'user'), [])
    .option('--allow-group <group>', 'group whose processes may use it', idOf('/etc/group', 'group'), [])
    .option('-q, --quiet', 'print only errors')
    .addHelpText('after', HELP)
    .action((flags: Flags) => serve(flags));
}

/** First file descriptor that a service manager passes (sd_listen_fds(3)). */
const LISTEN_FDS_START = 3;

/** Returns the socket that the service manager listens on for this process; undefined if there is none. */
function passedListener(): number | undefined {
  const { LISTEN_PID, LISTEN_FDS } = process.env;
  return LISTEN_PID === `${process.pid}` && Number(LISTEN_FDS) > 0 ? LISTEN_FDS_START : undefined;
}

async function serve({ idle, allow, allowGroup, quiet }: Flags): Promise<void> {
  const output = new Output(false);
  const stop = stopSignal();
  const listener = passedListener();
  const broker = Broker.open({
    ...(listener !== undefined && { listener }),
    ...(idle !== undefined && { idleMs: idle * 1000 }),
    admits: (peer) => isOwnerOrRoot(peer) || allow.includes(peer.uid) || allowGroup.includes(peer.gid),
    log: (line) => {
      if (!quiet) output.note(line);
    },
  });
  stop.addEventListener('abort', () => broker.close());
  await broker.closed;
}
