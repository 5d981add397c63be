/** A party by itself, with no network, on one CPU. */
import { startChild } from './child.js';
import { cpusOf } from './cpus.js';
import { PartyProcess } from './party.js';
import { PROGRAMS } from './paths.js';
import type { Program } from './program.js';

export function startLocal(kind: string): PartyProcess {
  return new PartyProcess(onOneCpu([process.execPath, `${PROGRAMS}/js/party/main.js`, kind]));
}

export function onOneCpu(command: readonly string[]): Program {
  return startChild(['taskset', '-c', cpusOf().a.split(',')[0] ?? '0'], command);
}
