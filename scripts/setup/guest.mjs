// The virtual machine of the interop tests. Its image lies in a cache that all clones share; the stamp remembers where.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, tool } from './run.mjs';
import { Stamp } from './stamp.mjs';

const BUILDER = 'test/interop/guest/image.ts';
const PLACE = 'build/stamps/guest-folder';
const SKIPPED = 'interop tests against a real rxe are skipped';

const stamp = new Stamp('guest', { inputs: ['test/interop/guest'], outputs: [PLACE] });

export const guest = {
  name: 'guest image',
  /** The tests run without it, and say so. */
  optional: SKIPPED,
  pending() {
    if (!existsSync(join(ROOT, BUILDER))) return undefined;
    if (stamp.isFresh() && existsSync(readFileSync(join(ROOT, PLACE), 'utf8'))) return undefined;
    if (process.getuid?.() !== 0) return { blocked: `not root: it cannot be built, ${SKIPPED} unless it is there` };
    const absent = ['mmdebstrap', 'qemu-system-x86_64'].filter((command) => !onPath(command));
    if (absent.length > 0) return { blocked: `${absent.join(', ')} not found: ${SKIPPED}` };
    const build = async () => {
      const printed = await tool('tsx', BUILDER);
      writeFileSync(join(ROOT, PLACE), printed.trim().split('\n').at(-1) ?? '');
    };
    return { doing: 'building a small Debian with rxe', make: () => stamp.make(build) };
  },
};
