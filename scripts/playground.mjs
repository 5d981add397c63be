#!/usr/bin/env node
// npm run playground: makes build/playground.html, a page with two cards and a network between them. The page needs no
// server and no network. A first argument names another file.
import { readFileSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join, resolve } from 'node:path';
import { ROOT } from './setup/run.mjs';
import { PLAYGROUND_STEPS, trySetup } from './setup.mjs';

const FOLDER = join(ROOT, 'web/playground');

/** Bundles a program or a style of the page. */
async function bundle(name) {
  // not before setup, which may install it
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints: [join(FOLDER, name)],
    ...{ bundle: true, minify: true, write: false, format: 'iife', target: 'es2022', legalComments: 'none' },
    // the verbs are those of the package; what they use of Node is replaced
    alias: Object.fromEntries(builtinModules.map((module) => [`node:${module}`, join(FOLDER, 'node.ts')])),
    inject: name.endsWith('.ts') ? [join(FOLDER, 'globals.ts')] : [],
    define: { 'import.meta.url': '"file:///"' },
    logLevel: 'error',
  });
  return outputFiles[0].text;
}

/** Returns the text of the page. */
export async function playgroundPage() {
  const parts = {
    style: await bundle('playground.css'),
    card: readFileSync(join(ROOT, 'build/card.wasm')).toString('base64'),
    // the text of the program must not end its element
    script: (await bundle('playground.ts')).replaceAll('</script', '<\\/script'),
  };
  return readFileSync(join(FOLDER, 'playground.html'), 'utf8').replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
}

if (import.meta.filename === process.argv[1]) {
  if (await trySetup(PLAYGROUND_STEPS)) {
    const path = resolve(process.argv[2] ?? join(ROOT, 'build/playground.html'));
    writeFileSync(path, await playgroundPage());
    console.log(path);
  } else {
    process.exitCode = 1;
  }
}
