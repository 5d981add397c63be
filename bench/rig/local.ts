/** A worker without a network, on one CPU. */
import { startChild } from './child.js';
import { cpusOf } from './cpus.js';
import { PROGRAMS } from './paths.js';
import type { Program } from './program.js';
import { WorkerProcess } from './worker.js';

export function startLocal(kind: string): WorkerProcess {
  return new WorkerProcess(onOneCpu([process.execPath, `${PROGRAMS}/js/bench/workers/main.js`, kind]));
}

export function onOneCpu(command: readonly string[]): Program {
  return startChild(['taskset', '-c', cpusOf().a.split(',')[0] ?? '0'], command);
}
