/** The report of a run as JSON. docs/probe-report.md describes it; a member that changes its meaning raises VERSION. */

import type { Deviation } from '../checks/checkbase.js';
import type { Verdict } from '../checks/result.js';
import { type Distribution, distribution } from './distribution.js';
import { type CmFigures, cmFigures, type FlowFigures, flowFigures } from './figures.js';
import { type Fingerprint, fingerprint } from './fingerprint.js';
import { type Outcome, outcomes, type ProbeLink, type ProbeRun } from './run.js';

/** Name of the format, which the JSON text begins with. */
const SCHEMA = 'wasm-roce probe report';
const VERSION = 1;

/** All verdicts, from good to bad, then those of checks that did not run. */
export const VERDICTS = ['pass', 'deviates', 'fails', 'not applicable', 'not reachable'] as const satisfies Verdict[];

/** The report of a run, as JSON has it. */
export interface ProbeReport {
  /** Name of the format. */
  readonly schema: typeof SCHEMA;
  /** Version of the format: it grows when a member changes its meaning or goes, not when one is added. */
  readonly schema_version: typeof VERSION;
  /** The program that ran the checks, and its version. */
  readonly generator: { readonly name: string; readonly version: string };
  /** The peer as the user named it. */
  readonly peer: string;
  /** When the run began, as in ISO 8601. */
  readonly date: string;
  /** The reason why the run ended before its last check. Absent: it did not. */
  readonly ended?: string;
  /** The links that the packets took. */
  readonly links: readonly ProbeLink[];
  /** Number of checks by verdict. */
  readonly summary: Readonly<Record<Verdict, number>>;
  /** The probable maker of the peer. */
  readonly fingerprint: Fingerprint;
  /** rdma_cm's messages of all checks. */
  readonly connection_manager: CmFigures;
  /** The checks in the order of their numbers, or of the run's choice of them. */
  readonly checks: readonly CheckReport[];
}

/** The result of one check, in JSON. */
export interface CheckReport {
  /** Number in the list of checks; checks that sharpen another one share its number. */
  readonly number: number;
  /** Its own name. */
  readonly name: string;
  /** The rule that holds when it passes. */
  readonly title: string;
  /** The clause of the specification that demands it. */
  readonly clause: string;
  /** The packets that it sends. */
  readonly sends: string;
  /** The answers that it expects. */
  readonly expects: string;
  /** Its verdict. */
  readonly verdict: Verdict;
  /** The reason, if it did not pass. */
  readonly text: string;
  /** The known deviation, if the verdict is that. */
  readonly deviation?: Deviation;
  /** Its measurements by name. */
  readonly measurements: Readonly<Record<string, Distribution>>;
  /** Counts of its packets, for each pair of queue pairs. */
  readonly flows: readonly FlowFigures[];
}

/** Returns the report of a run. @throws RangeError when a result is of none of the checks */
export function probeReport(run: ProbeRun): ProbeReport {
  const { peer, version, date, links, results, ended } = run;
  const summary = Object.fromEntries(
    VERDICTS.map((verdict) => [verdict, results.filter((result) => result.verdict === verdict).length]),
  ) as Record<Verdict, number>;
  return {
    schema: SCHEMA,
    schema_version: VERSION,
    generator: { name: 'wasm-roce', version },
    peer,
    date: date.toISOString(),
    ...(ended !== undefined && { ended }),
    links,
    summary,
    fingerprint: fingerprint(run),
    connection_manager: cmFigures(results.flatMap(({ evidence }) => evidence)),
    checks: outcomes(run).map(checkReport),
  };
}

function checkReport({ check, result }: Outcome): CheckReport {
  const { number, name, title, clause, sends, expects } = check;
  const { verdict, text, deviation, evidence } = result;
  return {
    ...{ number, name, title, clause, sends, expects, verdict, text, ...(deviation && { deviation }) },
    measurements: distributions({ check, result }),
    flows: flowFigures(evidence),
  };
}

/** Returns the distributions of what a check measured, by name. */
export function distributions({ check, result }: Outcome): Record<string, Distribution> {
  return Object.fromEntries(
    Object.entries(result.measurements).flatMap(([name, values]) => {
      const found = distribution(values, check.counts?.includes(name) ? 'count' : 'ns');
      return found ? [[name, found]] : [];
    }),
  );
}

/** Returns a report from its JSON text. @throws RangeError when it is none, or of another version of the format */
export function parseProbeReport(text: string): ProbeReport {
  let report: Partial<ProbeReport> | null;
  try {
    report = JSON.parse(text);
  } catch (cause) {
    throw new RangeError(`the report is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (report?.schema !== SCHEMA)
    throw new RangeError(`schema is ${JSON.stringify(report?.schema)}, must be "${SCHEMA}"`);
  if (report.schema_version !== VERSION)
    throw new RangeError(`schema_version is ${JSON.stringify(report.schema_version)}, must be ${VERSION}`);
  checkText('', report, 'peer', 'date');
  if (!Array.isArray(report.checks)) throw new RangeError(`checks is ${typeof report.checks}, must be an array`);
  for (const [i, check] of (report.checks as readonly (Partial<CheckReport> | null)[]).entries()) {
    const at = `checks[${i}]`;
    checkText(`${at}.`, check ?? {}, 'name', 'text');
    if (!VERDICTS.includes(check?.verdict as Verdict))
      throw new RangeError(`${at}.verdict is ${JSON.stringify(check?.verdict)}, must be one of ${VERDICTS.join(', ')}`);
    for (const [name, value] of Object.entries<Partial<Distribution> | null>(check?.measurements ?? {}))
      if (typeof value?.median !== 'number')
        throw new RangeError(`${at}.measurements.${name}.median is ${typeof value?.median}, must be a number`);
  }
  return report as ProbeReport;
}

/** @throws RangeError when one of the members is no string */
function checkText<T>(at: string, of: T, ...names: (keyof T & string)[]): void {
  for (const name of names)
    if (typeof of[name] !== 'string') throw new RangeError(`${at}${name} is ${typeof of[name]}, must be a string`);
}
