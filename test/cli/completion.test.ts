// Products of the definitions of the commands: completion, manual pages, groups and colours of the help.
import { execFile, execFileSync } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { manPages } from '../../src/cli/manpage.js';
import { createProgram } from '../../src/cli/program.js';
import { programPrivilege, testIf } from '../kit/privileges.js';
import { run } from './run.js';

describe('completion', () => {
  test.each(['bash', 'zsh', 'fish'])('%s: the script is printed to standard output', async (shell) => {
    const { status, stdout, stderr } = await run(['completion', shell]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain('wasm-roce');
    if (shell === 'bash') execFileSync('bash', ['-n'], { input: stdout });
  });

  test('another shell gives status 2, and the names of those that exist', async () => {
    const { status, stderr } = await run(['completion', 'tcsh']);
    expect(status).toBe(2);
    expect(stderr).toMatch(/'tcsh' is invalid.*zsh, bash, fish/);
  });

  test.each([
    [['send-'], ['send-bw', 'send-lat']],
    [['send-bw', '--conn'], ['--connection']],
    [
      ['send-bw', '--connection', ''],
      ['RC', 'UC', 'UD'],
    ],
    [['g'], ['get']],
    [
      ['completion', ''],
      ['zsh', 'bash', 'fish'],
    ],
  ])('%j is completed by %j', async (words, expected) => {
    const { stdout } = await run(['complete', '--', ...words]);
    const found = stdout.split('\n').map((line) => line.split('\t')[0]);
    expect(found).toEqual(expect.arrayContaining(expected));
    expect(found).not.toContain('devinfo');
  });
});

describe('manual pages', async () => {
  const program = await createProgram();
  const pages = manPages(program);

  test('exist for the program and for each command, with everything that --help prints', async () => {
    const { stdout: help } = await run(['--help']);
    const names = [...help.matchAll(/^ {2}([a-z][a-z-]+) (?:\[|<| )/gm)]
      .map(([, name]) => name)
      .filter((name) => name !== 'help');
    const nested = program.commands.flatMap((command) =>
      command.commands.map((sub) => `${command.name()}-${sub.name()}`),
    );
    expect(nested).toEqual(['nvme-discover', 'nvme-connect-test']);
    const all = [...names, ...nested].map((name) => `wasm-roce-${name}.1`);
    expect([...pages.keys()].sort()).toEqual(['wasm-roce.1', ...all].sort());
    for (const command of program.commands.filter((command) => pages.has(`wasm-roce-${command.name()}.1`)))
      for (const { flags } of command.options)
        expect(pages.get(`wasm-roce-${command.name()}.1`)).toContain(flags.replaceAll('-', '\\-'));
  });

  testIf(programPrivilege('groff'), 'groff formats them without a warning', async () => {
    const format = promisify(execFile);
    for (const name of ['wasm-roce.1', 'wasm-roce-endpoint.1', 'wasm-roce-get.1']) {
      const formatting = format('groff', ['-man', '-ww', '-Tutf8', '-P-cbou']);
      formatting.child.stdin?.end(pages.get(name));
      const { stdout, stderr } = await formatting;
      expect(stderr).toBe('');
      for (const title of ['NAME', 'SYNOPSIS', 'OPTIONS', 'EXAMPLES', 'EXIT STATUS']) expect(stdout).toContain(title);
    }
  });
});

describe('the completion of a program for one command', async () => {
  const { commands } = await createProgram();
  const ofShell = ['completion', 'complete'];

  test.each(commands.map((command) => command.name()).filter((name) => !ofShell.includes(name)))(
    'has %s as in the whole program',
    async (name) => {
      const whole = commands.find((command) => command.name() === name);
      const few = (await createProgram(name)).commands;
      expect(few.length).toBeLessThan(5);
      const alone = few.find((command) => command.name() === name);
      expect(alone?.helpInformation()).toBe(whole?.helpInformation());
    },
  );

  test('defines one of the tests of perftest', async () => {
    const { commands } = await createProgram('send-bw');
    expect(commands.map((command) => command.name())).toEqual(['send-bw']);
  });
});

describe('help', () => {
  test('commands are in groups', async () => {
    const { stdout } = await run(['--help']);
    const titles = [...stdout.matchAll(/^([A-Z].*):$/gm)].map(([, title]) => title);
    expect(titles).toEqual([
      ...[
        'Options',
        'Programs of libibverbs',
        'Diagnostics',
        'Pipes and services',
        'Peers of rdma-core',
        'Peers of perftest',
        'Shell',
        'Examples',
      ],
    ]);
  });

  test('colours on a terminal, none with NO_COLOR or in a pipe', async () => {
    const env = { TERM: 'xterm-256color', NO_COLOR: undefined, FORCE_COLOR: undefined, CI: undefined };
    expect((await run(['--help'], { env, terminal: true })).stdout).toContain('\u001b[1mOptions:');
    expect((await run(['dance'], { env, terminal: true })).stdout).toContain('\u001b[31mwasm-roce:');
    for (const plain of [{ env: { ...env, NO_COLOR: '1' }, terminal: true }, { env }])
      for (const args of [['--help'], ['devinfo', 'lo']])
        expect((await run(args, plain)).stdout).not.toContain('\u001b[');
  });
});
