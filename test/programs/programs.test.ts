// Programs that others wrote, in two network namespaces and without privileges.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { corners } from '../interop/environment.js';
import { describeIf } from '../kit/privileges.js';
import { ROOT } from '../repo/sources.js';
import { PROGRAMS, type Way } from './catalogue.js';
import { Hosts, present } from './hosts.js';
import { tableOf } from './table.js';

const PAGE = join(ROOT, 'docs/tested-programs.md');

/** Returns the version of a package of Debian. */
const versionOf = (name: string) =>
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the field is dpkg's
  execFileSync('dpkg-query', ['-W', '-f', '${Version}', name], { encoding: 'utf8' });

describeIf(present, 'programs of others', () => {
  let hosts: Hosts;
  const passed = new Set<Way>();
  beforeAll(async () => {
    hosts = await Hosts.open('prc', 201);
  });
  afterAll(() => hosts.close());

  const rows = PROGRAMS.flatMap((program) => program.ways.map((way) => ({ program, way })));
  const chosen = corners(rows, ({ way }) => way.core === true);
  const titled = chosen.map(({ program, way }) => {
    const outcome = way.refused === undefined ? 'completes' : 'is refused';
    return [program.name, outcome, way.name, way] as const;
  });
  test.each(titled)('%s %s: %s', async (_, __, ___, way) => {
    await hosts.run(way);
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
