/** A worker without a network, on one CPU. */
import { startChild } from './child.js';
import { cpusOf } from './cpus.js';
import { PROGRAMS } from './paths.js';
import type { Program } from './program.js';
import { WorkerProcess } from './worker.js';

/** Starts a worker of several, which divide all CPUs. */
export function startOneOf(index: number, kind: string): WorkerProcess {
  const { a, b } = cpusOf();
  const program = `${PROGRAMS}/js/bench/workers/main.js`;
  return new WorkerProcess(startChild(['taskset', '-c', index % 2 === 0 ? a : b], [process.execPath, program, kind]));
}

export function startLocal(kind: string): WorkerProcess {
  return new WorkerProcess(onOneCpu([process.execPath, `${PROGRAMS}/js/bench/workers/main.js`, kind]));
}

export function onOneCpu(command: readonly string[]): Program {
  return startChild(['taskset', '-c', cpusOf().a.split(',')[0] ?? '0'], command);
}
