/** Access to the card's second entry, assembly/testing.ts, which exports internals to tests. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../repo/sources.js';
import type { RigQp } from './rig.js';

/** Compiles the entry with the options of asconfig.json, so that it can use the memory of any card. */
export async function compileTesting(): Promise<WebAssembly.Module> {
  const folder = await mkdtemp(join(tmpdir(), 'wasm-roce-testing-'));
  try {
    const file = join(folder, 'testing.wasm');
    const { options } = JSON.parse(await readFile(join(ROOT, 'asconfig.json'), 'utf8'));
    const pages = ['--initialMemory', '16', '--maximumMemory', String(options.maximumMemory)];
    const same = [
      '--importMemory',
      '--sharedMemory',
      '--runtime',
      options.runtime,
      '--enable',
      options.enable.join(','),
    ];
    const args = ['assembly/testing.ts', '--config', 'none', '--outFile', file, ...pages, ...same, '-O3', '--noAssert'];
    await promisify(execFile)(join(ROOT, 'node_modules/.bin/asc'), args, { cwd: ROOT });
    return new WebAssembly.Module(await readFile(file));
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Sets the number of messages that a queue pair has sent and received, modulo 2^24. */
export async function setMessages(
  module: WebAssembly.Module,
  qp: RigQp,
  sent: number,
  received: number,
): Promise<void> {
  const { memory } = qp.rig.card;
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  (exports.setMessages as (qp: number, sent: number, received: number) => void)(qp.handle, sent, received);
}
