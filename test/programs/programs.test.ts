// Programs that others wrote, in two network namespaces and without privileges.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Ended } from '../cli/run.js';
import { corners } from '../interop/environment.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { ROOT } from '../repo/sources.js';
import { PROGRAMS, type Way } from './catalogue.js';
import { built, connected, type Host, LIBRARY, launch, listening } from './ends.js';
import { tableOf } from './table.js';

const NET = 201;
const PAGE = join(ROOT, 'docs/tested-programs.md');
const needs = ['ibv_devinfo', 'rping', 'ib_write_bw', 'qperf', 'ucx_info', 'fi_info', 'nsenter', 'setpriv'].map(
  programPrivilege,
);

/** Returns the version of a package of Debian. */
const versionOf = (name: string) =>
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the field is dpkg's
  execFileSync('dpkg-query', ['-W', '-f', '${Version}', name], { encoding: 'utf8' });

describeIf(all(built, netPrivilege(), ...needs), 'programs of others', () => {
  let namespace: PeerNamespace;
  let near: Host;
  let far: Host;
  let lastPort = 19_000;
  let folder: string;
  const passed = new Set<Way>();
  beforeAll(async () => {
    namespace = await PeerNamespace.open('prc', NET);
    folder = mkdtempSync(join(tmpdir(), 'wasm-roce-programs-'));
    near = { interface: namespace.near, enter: ['env'] };
    far = { interface: namespace.far, enter: ['nsenter', ...namespace.enter] };
  });
  afterAll(() => {
    namespace.close();
    rmSync(folder, { recursive: true });
  });

  /** Returns the words of an end. */
  function wordsOf(words: string, { family }: Way, port: number): string[] {
    const isIpv6 = family === 'IPv6';
    const addressOf = (n: number) => (isIpv6 ? `fd00:${NET}::${n}` : `10.${NET}.0.${n}`);
    const values: Record<string, string> = {
      ADDRESS: addressOf(2),
      CLIENT: addressOf(1),
      IPV4: `10.${NET}.0.2`,
      PORT: `${port}`,
      GID: isIpv6 ? '2' : '1',
      FILE: LIBRARY,
      COPY: join(folder, 'copy'),
    };
    const all = words.trim().split(/ +/);
    return all.map((word) => word.replace(/[A-Z\d]{3,}/g, (name) => values[name] ?? name));
  }

  function expectComplete(ended: Ended, { prints }: Way): void {
    expect(ended).toMatchObject({ status: 0, ...(prints && { stdout: expect.stringMatching(prints) }) });
  }

  async function runBoth(way: Way & { server: string }): Promise<void> {
    const port = ++lastPort;
    const server = () => launch(far, wordsOf(way.server, way, port));
    const client = () => launch(near, wordsOf(way.client, way, port));
    const run = async () => {
      if (way.cm) return connected(server, client);
      const serving = server();
      await listening(serving, port);
      return [serving, await client().ended] as const;
    };
    const [serving, ended] = await run();
    expectComplete(ended, way);
    if (way.stays) serving.child.kill();
    else expect(await serving.ended).toMatchObject({ status: 0 });
  }

  async function run(way: Way): Promise<void> {
    if (way.server !== undefined && !way.refused) return runBoth({ ...way, server: way.server });
    const ended = await launch(far, wordsOf(way.client, way, ++lastPort)).ended;
    if (way.refused) {
      expect(ended.status).not.toBe(0);
      expect(ended.stdout + ended.stderr).toMatch(way.refused);
    } else {
      expectComplete(ended, way);
    }
  }

  const rows = PROGRAMS.flatMap((program) => program.ways.map((way) => ({ program, way })));
  const chosen = corners(rows, ({ way }) => way.core === true);
  const titled = chosen.map(({ program, way }) => {
    const outcome = way.refused === undefined ? 'completes' : 'is refused';
    return [program.name, outcome, way.name, way] as const;
  });
  test.each(titled)('%s %s: %s', async (_, __, ___, way) => {
    await run(way);
    passed.add(way);
  });

  const release = /VERSION_ID="?(\d+)/.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  // the corners of `npm test` are not the whole page
  if (chosen.length === rows.length && release === '12')
    test('the page of programs lists the ways that run', async () => {
      const found = PROGRAMS.map((program) => ({ ...program, ways: program.ways.filter((way) => passed.has(way)) }));
      await expect(tableOf(found, versionOf)).toMatchFileSnapshot(PAGE);
    });
});
