/** The tree of commands. It has all that --help, completion and the manual pages say. */
import { styleText } from 'node:util';
import { Command } from 'commander';
import { EXIT_HELP } from './exit.js';
import { styled } from './output.js';
import { version } from './version.js';

/** Commander removes the colours where they do not belong: NO_COLOR, or no terminal. */
const ANYWHERE = { validateStream: false };

/** Commands of one module. */
interface CommandModule {
  /** Heading of the list of commands. */
  readonly section: string;
  readonly names: readonly string[];
  /** Returns what defines them in a program: all, or at least the one that is called. */
  load(): Promise<(program: Command, called?: string) => void>;
}

const DIAGNOSTICS = 'Diagnostics:';
const SERVICES = 'Pipes and services:';
const PROGRAMS = 'Programs of libibverbs:';
const OF_RDMA_CORE = 'Peers of rdma-core:';
const OF_PERFTEST = 'Peers of perftest:';
const SHELL = 'Shell:';

const MODULES: readonly CommandModule[] = [
  { section: PROGRAMS, names: ['run'], load: async () => (await import('./run/command.js')).runCommand },
  { section: DIAGNOSTICS, names: ['devinfo'], load: async () => (await import('./devinfo.js')).devinfoCommand },
  { section: DIAGNOSTICS, names: ['demo'], load: async () => (await import('./demo/command.js')).demoCommand },
  { section: DIAGNOSTICS, names: ['stat'], load: async () => (await import('./stat/command.js')).statCommand },
  { section: DIAGNOSTICS, names: ['fault'], load: async () => (await import('./fault.js')).faultCommand },
  { section: DIAGNOSTICS, names: ['ladder'], load: async () => (await import('./ladder.js')).ladderCommand },
  { section: DIAGNOSTICS, names: ['script'], load: async () => (await import('./script.js')).scriptCommand },
  { section: DIAGNOSTICS, names: ['probe'], load: async () => (await import('./probe/command.js')).probeCommand },
  {
    section: SERVICES,
    names: ['listen', 'connect'],
    load: async () => (await import('./netcat/command.js')).netcatCommands,
  },
  { section: SERVICES, names: ['endpoint'], load: async () => (await import('./endpoint/command.js')).endpointCommand },
  { section: SERVICES, names: ['get', 'put'], load: async () => (await import('./region/command.js')).regionCommands },
  {
    section: SERVICES,
    names: ['nvme-target', 'nvme'],
    load: async () => (await import('./nvme/command.js')).nvmeCommands,
  },
  { section: SERVICES, names: ['broker'], load: async () => (await import('./broker.js')).brokerCommand },
  { section: SERVICES, names: ['valkey-proxy'], load: async () => (await import('./valkey.js')).valkeyCommand },
  {
    section: OF_RDMA_CORE,
    names: ['pingpong', 'uc-pingpong', 'ud-pingpong', 'srq-pingpong'],
    load: async () => (await import('./pingpong/command.js')).pingpongCommand,
  },
  { section: OF_RDMA_CORE, names: ['rping'], load: async () => (await import('./rping/command.js')).rpingCommand },
  {
    section: OF_PERFTEST,
    names: ['send', 'write', 'read', 'atomic'].flatMap((verb) => [`${verb}-bw`, `${verb}-lat`]),
    load: async () => (await import('./perftest/command.js')).perftestCommands,
  },
];

/**
 * Returns the program with all its commands.
 * @param called the first word of the command line. If it names a command, the program may lack the others: to load and
 * define all of them takes longer than most commands.
 */
export async function createProgram(called?: string): Promise<Command> {
  const program = new Command('wasm-roce')
    .description('A software RoCEv2 adapter: diagnostics, benchmarks, pipes and services over RDMA')
    // no short form: -V is an option of rping
    .version(`wasm-roce ${version}`, '--version', 'print the version')
    .option('--debug', 'print the stack trace of an error')
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce run -- ib_write_bw       run a program of libibverbs on a card of its own
  wasm-roce demo                     run every operation between two cards and print a table
  wasm-roce devinfo                  show interfaces, GIDs, links and limits
  wasm-roce pingpong                 serve one client: ibv_rc_pingpong or wasm-roce pingpong HOST
  wasm-roce pingpong 192.0.2.7 -c    connect to such a server and verify every byte
  wasm-roce ud-pingpong              serve ibv_ud_pingpong (also: uc-pingpong, srq-pingpong)
  wasm-roce rping -s                 serve rping, which connects by rdma_cm
  wasm-roce listen 7471 > copy       receive what wasm-roce connect HOST 7471 < file sends
  wasm-roce stat --watch             show the counters of other processes' devices
  wasm-roce endpoint --serve echo    serve echo until stopped
  wasm-roce ladder capture.pcapng    show a capture as a page
  wasm-roce probe 192.0.2.7          test what a peer does, packet by packet
  wasm-roce get 192.0.2.7 table      read the region table of an endpoint
${EXIT_HELP}`,
    )
    // Keep an error on one line: commander prints its suggestion on a second one.
    .configureOutput({
      outputError: (text, write) =>
        write(text.replace(/^error: /, `${styled('red', 'wasm-roce:', process.stderr)} `).replace(/\n(?=\()/, ' ')),
    })
    .exitOverride();
  // before commands are added, which take it over
  program.configureHelp({
    styleTitle: (text) => styleText('bold', text, ANYWHERE),
    styleCommandText: (text) => styleText('cyan', text, ANYWHERE),
    styleOptionText: (text) => styleText('cyan', text, ANYWHERE),
    styleArgumentText: (text) => styleText('cyan', text, ANYWHERE),
  });
  const own = MODULES.find(({ names }) => called !== undefined && names.includes(called));
  if (own !== undefined) (await own.load())(program, called);
  else {
    for (const { section, load } of MODULES) {
      program.commandsGroup(section);
      (await load())(program);
    }
    await addCompletion(program);
  }
  program.helpCommand(true);
  for (const command of program.commands) command.copyInheritedSettings(program);
  return program;
}

const COMPLETION_HELP = `
Examples:
  source <(wasm-roce completion bash)       in ~/.bashrc
  source <(wasm-roce completion zsh)        in ~/.zshrc
  wasm-roce completion fish > ~/.config/fish/completions/wasm-roce.fish
${EXIT_HELP}`;

/** Adds the command `completion`, which completes the commands that the program has by now. */
async function addCompletion(program: Command): Promise<void> {
  const { default: tab } = await import('@bomb.sh/tab/commander');
  program.commandsGroup(SHELL);
  tab(program, { completionCommandName: 'completion' });
  program.commands
    .find((command) => command.name() === 'completion')
    ?.summary('print what a shell needs to complete commands and options')
    .description('Prints a script by which a shell completes commands, options and their values.')
    .addHelpText('after', COMPLETION_HELP);
}
