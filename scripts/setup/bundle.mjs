// Bundles the package's JavaScript: one file for each entry, and chunks that entries share.
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { rolldown } from 'rolldown';
import license from 'rollup-plugin-license';
import { ROOT } from './run.mjs';

const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

/** Files of dist/ that are loaded by name, and their sources. */
const ENTRIES = {
  ...Object.fromEntries(
    Object.values(exports).map(({ default: file }) => {
      const name = basename(file, '.js');
      return [name, `src/${name}.ts`];
    }),
  ),
  'cli/main': 'src/cli/main.ts',
  // programs of threads and processes, by src/packagefile.ts
  cardworker: 'src/device/cardworker.ts',
  democard: 'src/cli/demo/card.ts',
  reducethread: 'src/protocols/collective/reducethread.ts',
};

/** Names a chunk after its last module: `chunk-verbs-cq.js`, or after a package: `chunk-zod.js`. */
function chunkName({ moduleIds, facadeModuleId }) {
  const id = moduleIds.at(-1) ?? facadeModuleId;
  const [, ofPackage] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id) ?? [];
  const [, ofModule] = /^.*?\/src\/(.*)\.ts$/.exec(id) ?? [];
  // the one that is neither comes from the bundler
  const name = ofPackage ?? ofModule ?? 'runtime';
  return `chunk-${name.replace('@', '').replaceAll('/', '-')}.js`;
}

/**
 * Bundles src/ to dist/. Each module and each package lies in one file, so that all entries share its state and its
 * classes. Few files load in a third of the time of hundreds. All of them but dist/cli/main.js lie in dist/ itself,
 * which src/packagefile.ts needs.
 * @param licences file for the licences of the packages in the bundles
 */
export async function bundle({ licences }) {
  const bundles = await rolldown({
    cwd: ROOT,
    input: ENTRIES,
    platform: 'node',
    // the user's own, see peerDependencies
    external: /^@connectrpc\//,
    // package.json's oldest version of Node
    transform: { target: 'node20.12' },
    resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
    plugins: [license({ thirdParty: { output: { file: join(ROOT, licences) } } })],
  });
  await bundles.write({
    dir: 'dist',
    format: 'esm',
    chunkFileNames: chunkName,
    // V8 keeps the text of each file in its heap, and takes two bytes for each character if one is not of Latin-1. The
    // declarations have the comments for users.
    comments: { jsdoc: false },
    minify: { compress: false, mangle: false, codegen: { asciiOnly: true, removeWhitespace: false } },
  });
  await bundles.close();
}
