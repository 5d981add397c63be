// Steps whose result is outside of the clone, in a cache that all clones share. A file among the stamps says where.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, run } from './run.mjs';
import { Stamp } from './stamp.mjs';

/**
 * Returns a step without its name.
 * @param id of the stamp and of the file that says where the result is
 * @param builder program that prints the place of its result in its last line
 * @param inputs files and folders on which the result depends
 * @param commands that the builder needs
 * @param skipped the tests that are skipped without the result
 * @param doing the work of the builder, for messages
 */
export function outsideStep({ id, builder, inputs, env = {}, commands, skipped, doing, blocked = () => undefined }) {
  const place = join(ROOT, `build/stamps/${id}-folder`);
  const stamp = new Stamp(id, { inputs, outputs: [`build/stamps/${id}-folder`], cached: [] });
  const build = async () => {
    const printed = await run(join(ROOT, 'node_modules/.bin/tsx'), [builder], env);
    writeFileSync(place, printed.trim().split('\n').at(-1) ?? '');
  };
  return {
    optional: skipped,
    pending() {
      if (!existsSync(join(ROOT, builder))) return undefined;
      if (stamp.isFresh() && existsSync(readFileSync(place, 'utf8'))) return undefined;
      const reason = blocked();
      if (reason !== undefined) return { blocked: reason };
      const absent = commands.filter((command) => !onPath(command));
      if (absent.length > 0) return { blocked: `${absent.join(', ')} not found: ${skipped}` };
      return { doing, make: () => stamp.make(build) };
    },
  };
}
