// The action for CI, and the page that describes it.
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { all, describeIf, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { built } from '../programs/ends.js';
import { ROOT } from '../repo/sources.js';

const MAIN = join(ROOT, 'dist/cli/main.js');
const PAGE = readFileSync(join(ROOT, 'docs/ci.md'), 'utf8');

interface Action {
  readonly inputs: Readonly<Record<string, { readonly default: string }>>;
  readonly runs: {
    readonly steps: readonly [{ readonly env: Readonly<Record<string, string>>; readonly run: string }];
  };
}

/** Returns the code blocks of the page in a language. */
const blocks = (language: string): string[] =>
  Array.from(PAGE.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm')), ([, code = '']) => code);

describeIf(all(built, netPrivilege(), programPrivilege('bash'), programPrivilege('ibv_devices')), 'the action', () => {
  const { inputs, runs } = parse(readFileSync(join(ROOT, 'action.yml'), 'utf8')) as Action;
  const [step] = runs.steps;
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'wasm-roce-action-'));
    // an npm that "installs" this project
    mkdirSync(join(folder, 'bin'));
    writeFileSync(
      join(folder, 'bin/npm'),
      `#!/bin/sh
      while [ "$1" != --prefix ]; do shift; done
      mkdir -p "$2/node_modules/.bin"
      echo "$3" > "$2/installed"
      printf '#!/bin/sh\\nexec "${process.execPath}" "${MAIN}" "$@"\\n' > "$2/node_modules/.bin/wasm-roce"
      chmod +x "$2/node_modules/.bin/wasm-roce"
      `,
    );
    chmodSync(join(folder, 'bin/npm'), 0o755);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** Runs the step of the action. @returns the environment of the steps that follow */
  function environmentAfter(given: Readonly<Record<string, string>> = {}): Record<string, string> {
    const file = join(folder, 'environment');
    writeFileSync(file, '');
    const filled = (text: string) =>
      text.replace(/\$\{\{ inputs\.(\w+) \}\}/g, (_, name: string) => given[name] ?? inputs[name]?.default ?? '');
    const env = Object.fromEntries(Object.entries(step.env).map(([name, value]) => [name, filled(value)]));
    execFileSync('bash', ['--noprofile', '--norc', '-e', '-o', 'pipefail', '-c', step.run], {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { PATH: `${folder}/bin:${process.env.PATH}`, RUNNER_TEMP: folder, GITHUB_ENV: file, ...env },
    });
    const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
    return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2) as [string, string]));
  }

  test('gives the steps that follow the device', () => {
    const env = { PATH: process.env.PATH, ...environmentAfter() };
    expect(readFileSync(join(folder, 'wasm-roce/installed'), 'utf8')).toBe('wasm-roce\n');
    expect(execFileSync('ibv_devices', { env, encoding: 'utf8' })).toContain('wroce0');
    // programs of Node go on under it, too
    expect(execFileSync(process.execPath, [MAIN, '--version'], { env, encoding: 'utf8' })).toMatch(/^wasm-roce \d/);
  });

  test('passes its inputs on', () => {
    const report = join(folder, 'a report');
    const given = { package: './wasm-roce.tgz', interface: 'lo', explain: 'false', report };
    expect(environmentAfter(given)).toMatchObject({ WASM_ROCE_INTERFACE: 'lo', WASM_ROCE_REPORT: report });
    expect(environmentAfter(given)).not.toHaveProperty('WASM_ROCE_EXPLAIN');
    expect(environmentAfter()).toHaveProperty('WASM_ROCE_EXPLAIN');
    expect(environmentAfter()).not.toHaveProperty('WASM_ROCE_REPORT');
  });

  test('is used by each workflow of the page', () => {
    const workflows = blocks('yaml').map((text) => parse(text).jobs.test.steps as { uses?: string; with?: object }[]);
    expect(workflows).toHaveLength(4);
    for (const steps of workflows) {
      const uses = steps.filter((one) => one.uses === 'OWNER/wasm-roce@v1');
      expect(uses).toHaveLength(1);
      expect(Object.keys(inputs)).toEqual(expect.arrayContaining(Object.keys(uses[0]?.with ?? {})));
    }
  });

  const pyverbs = { ok: hasPyverbs(), reason: 'python3-pyverbs is not installed' };
  testIf(pyverbs, 'runs the program of the page in Python', () => {
    const [program = ''] = blocks('python');
    const env = { PATH: process.env.PATH, ...environmentAfter() };
    expect(execFileSync('/usr/bin/python3', ['-c', program], { env, encoding: 'utf8' })).toBe('hello\n');
  });
});

function hasPyverbs(): boolean {
  try {
    execFileSync('/usr/bin/python3', ['-c', 'import pyverbs.device'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
