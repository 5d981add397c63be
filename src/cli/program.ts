/** The tree of commands. It has all that --help, completion and the manual pages say. */
import { readFileSync } from 'node:fs';
import { styleText } from 'node:util';
import tab from '@bomb.sh/tab/commander';
import { Command } from 'commander';
import { demoCommand } from './demo/command.js';
import { devinfoCommand } from './devinfo.js';
import { endpointCommand } from './endpoint/command.js';
import { EXIT_HELP } from './exit.js';
import { ladderCommand } from './ladder.js';
import { netcatCommands } from './netcat/command.js';
import { styled } from './output.js';
import { perftestCommands } from './perftest/command.js';
import { pingpongCommand } from './pingpong/command.js';
import { probeCommand } from './probe/command.js';
import { regionCommands } from './region/command.js';
import { rpingCommand } from './rping/command.js';
import { scriptCommand } from './script.js';
import { statCommand } from './stat/command.js';
import { valkeyCommand } from './valkey.js';

/** Commander removes the colours where they do not belong: NO_COLOR, or no terminal. */
const ANYWHERE = { validateStream: false };

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

/** Returns the program with all its commands. */
export function createProgram(): Command {
  const program = new Command('wasm-roce')
    .description('A software RoCEv2 adapter: diagnostics, benchmarks, pipes and services over RDMA')
    // no short form: -V is an option of rping
    .version(`wasm-roce ${version}`, '--version', 'print the version')
    .option('--debug', 'print the stack trace of an error')
    .addHelpText(
      'after',
      `
Examples:
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
  program.commandsGroup('Diagnostics:');
  devinfoCommand(program);
  demoCommand(program);
  statCommand(program);
  ladderCommand(program);
  scriptCommand(program);
  probeCommand(program);
  program.commandsGroup('Pipes and services:');
  netcatCommands(program);
  endpointCommand(program);
  regionCommands(program);
  valkeyCommand(program);
  program.commandsGroup('Peers of rdma-core:');
  pingpongCommand(program);
  rpingCommand(program);
  program.commandsGroup('Peers of perftest:');
  perftestCommands(program);
  program.commandsGroup('Shell:');
  tab(program, { completionCommandName: 'completion' });
  describeCompletion(program);
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

function describeCompletion(program: Command): void {
  program.commands
    .find((command) => command.name() === 'completion')
    ?.summary('print what a shell needs to complete commands and options')
    .description('Prints a script by which a shell completes commands, options and their values.')
    .addHelpText('after', COMPLETION_HELP);
}
