/** The reports that `wasm-roce probe` writes, and the earlier one that it reads. */
import { readFileSync, writeFileSync } from 'node:fs';
import {
  compareReports,
  comparisonText,
  fingerprintText,
  junitReport,
  type ProbeReport,
  type ProbeRun,
  parseProbeReport,
  probeCapture,
  probePage,
  probeReport,
} from '../../probe.js';
import { CliError, Exit, usageError } from '../exit.js';
import type { Output } from '../output.js';

/** Paths of files, as the options name them. */
export interface Files {
  readonly json?: string;
  readonly html?: string;
  readonly junit?: string;
  readonly packets?: string;
  readonly baseline?: string;
}

/** Reads an earlier report, before anything is sent. */
export function readBaseline(path: string | undefined): ProbeReport | undefined {
  if (path === undefined) return undefined;
  try {
    return parseProbeReport(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw usageError(`--baseline ${path}: ${(cause as Error).message}`);
  }
}

/** Prints what the peer probably is and what differs from the earlier report, and writes the files. */
export function writeReports(run: ProbeRun, output: Output, files: Files, baseline: ProbeReport | undefined): void {
  const report = probeReport(run);
  output.line(fingerprintText(report.fingerprint));
  const comparison = baseline && compareReports(baseline, report);
  if (comparison !== undefined) output.line(comparisonText(comparison));
  const { json, html, junit, packets } = files;
  if (json === '-') output.result(report);
  else if (json !== undefined) write(json, `${JSON.stringify(report, undefined, 2)}\n`);
  if (html !== undefined) write(html, probePage(run, { ...(comparison && { comparison }) }));
  if (junit !== undefined) write(junit, junitReport(run));
  if (packets !== undefined) write(packets, probeCapture(run));
}

function write(path: string, contents: string | Uint8Array): void {
  try {
    writeFileSync(path, contents);
  } catch (cause) {
    throw new CliError(Exit.ENVIRONMENT, `${path} cannot be written: ${(cause as Error).message}`, { cause });
  }
}
