/** The report of a run as one HTML page that needs no network. */

import type { Verdict } from '../checks/result.js';
import { ladderData, ladderTemplate } from '../ladder/page.js';
import { embedded, escaped, fillPage, webFile } from '../ladder/template.js';
import { comparisonText, type ProbeComparison } from './compare.js';
import { type FlowFigures, flowFigures, ladderOf } from './figures.js';
import { ADAPTERS, type Fingerprint, fingerprint } from './fingerprint.js';
import { histogram } from './histogram.js';
import { distributions, VERDICTS } from './report.js';
import { type Outcome, outcomes, type ProbeLink, type ProbeRun } from './run.js';
import { distributionText, valueText } from './values.js';

/** Data of a page besides its run. */
export interface ProbePageOptions {
  /** The comparison with an earlier run. */
  readonly comparison?: ProbeComparison;
}

/**
 * Returns the page of a run: the verdicts, what was measured, and each check with what it sent, expected and found,
 * its distributions and its ladder.
 * @throws RangeError when a result is of none of the checks
 */
export function probePage(run: ProbeRun, { comparison }: ProbePageOptions = {}): string {
  const all = outcomes(run);
  const { peer, version, date, links, ended } = run;
  const ladders = all.flatMap(({ check: { name }, result: { evidence } }) =>
    evidence.length === 0 ? [] : [[name, ladderData(ladderOf(evidence))]],
  );
  return fillPage('report', {
    title: escaped(`Probe of ${peer}`),
    about: escaped([date.toISOString(), `wasm-roce ${version}`, ...links.map(linkText)].join(' · ')),
    ended: ended === undefined ? '' : `<p id="ended">The run has ended early: ${escaped(ended)}</p>`,
    verdicts: VERDICTS.map((verdict) => verdictBox(verdict, all)).join('\n'),
    fingerprint: fingerprintSection(fingerprint(run)),
    comparison: comparison === undefined ? '' : comparisonSection(comparison),
    overview: all.map(overviewCell).join(''),
    findings: findingsSection(all),
    measurements: measurementTable(all),
    checks: all.map(checkDetails).join('\n'),
    // the style of the ladder's page, and what differs from it
    style: webFile('ladder.css') + webFile('report.css'),
    data: embedded({ template: ladderTemplate(), ladders: Object.fromEntries(ladders) }),
  });
}

const linkText = ({ kind, interface: name, address, mtu, timeError }: ProbeLink) =>
  `link ${kind} on ${name} (${address}, MTU ${mtu}${timeError === undefined ? '' : `, times ± ${valueText(timeError, 'ns')}`})`;

/** The name of a verdict in classes of the style. */
const className = (verdict: Verdict) => verdict.replace(' ', '-');

function verdictBox(verdict: Verdict, all: readonly Outcome[]): string {
  const count = all.filter(({ result }) => result.verdict === verdict).length;
  const input = `<input type="checkbox" value="${className(verdict)}" checked${count === 0 ? ' disabled' : ''}>`;
  return `<label class="${className(verdict)}">${input} <b>${count}</b> ${verdict}</label>`;
}

/** A cell for each check, in its colour. The list of checks says the same to those who do not see it. */
function overviewCell({ check: { number, name }, result: { verdict } }: Outcome): string {
  const title = escaped(`${number} ${name}: ${verdict}`);
  return `<a class="${className(verdict)}" href="#check-${escaped(name)}" title="${title}" tabindex="-1"></a>`;
}

/** The checks that deviate or fail, those first that fail. */
function findingsSection(all: readonly Outcome[]): string {
  const of = (wanted: Verdict) => all.filter(({ result }) => result.verdict === wanted);
  const lines = [...of('fails'), ...of('deviates')].map(({ check: { number, name }, result }) => {
    const { verdict, text, deviation } = result;
    const known = deviation ? `<span class="known">known of ${escaped(deviation.of)}</span>` : '';
    const link = `<a href="#check-${escaped(name)}">${escaped(name)}</a>`;
    const cells = `<span class="number">${number}</span>${link}<span class="verdict">${verdict}</span>`;
    return `<li class="${className(verdict)}">${cells}<span>${escaped(text)}${known}</span></li>`;
  });
  const ran = of('pass').length > 0 ? 'Every check that applies passes.' : 'No check has run.';
  const list = lines.length === 0 ? `<p>${ran}</p>` : `<ul>${lines.join('\n')}</ul>`;
  return `<section aria-labelledby="findings"><h2 id="findings">Findings</h2>${list}</section>`;
}

function fingerprintSection({ probably, candidates }: Fingerprint): string {
  const title = probably === undefined ? 'What the peer is cannot be told' : `Probably ${ADAPTERS[probably]}`;
  const cell = (texts: readonly string[]) => `<td>${texts.map((text) => `<div>${escaped(text)}</div>`).join('')}</td>`;
  const rows = candidates.map((each) => {
    const score = `${each.score > 0 ? '+' : ''}${each.score}`;
    return `<tr><th scope="row">${escaped(each.title)}</th><td>${score}</td>${cell(each.for)}${cell(each.against)}</tr>`;
  });
  const head = ['adapter', 'score', 'for', 'against'].map((each) => `<th scope="col">${each}</th>`).join('');
  const table = `<table class="evidence"><thead><tr>${head}</tr></thead><tbody>\n${rows.join('\n')}\n</tbody></table>`;
  return [
    `<section aria-labelledby="peer"><h2 id="peer">${title}</h2>`,
    rows.length === 0 ? '' : `<details class="why"><summary>why</summary><div class="wide">${table}</div></details>`,
    '</section>',
  ].join('');
}

function comparisonSection(comparison: ProbeComparison): string {
  const [head = '', ...lines] = comparisonText(comparison).split('\n');
  const items = lines.map((line) => `<li>${escaped(line)}</li>`).join('\n');
  return `<section aria-labelledby="compared"><h2 id="compared">${escaped(head)}</h2>\n<ul>${items}</ul></section>`;
}

function measurementTable(all: readonly Outcome[]): string {
  const rows = all.flatMap((outcome) =>
    Object.entries(distributions(outcome)).map(([measurement, { unit, count, min, median, p99, max }]) => {
      const { number, name } = outcome.check;
      const link = `<a href="#check-${escaped(name)}">${number} ${escaped(name)}</a>`;
      const values = [min, median, p99, max].map((value) => `<td>${escaped(valueText(value, unit))}</td>`).join('');
      return `<tr><th scope="row">${escaped(measurement)}</th><td>${link}</td><td>${count}</td>${values}</tr>`;
    }),
  );
  if (rows.length === 0) return '<p>Nothing was measured.</p>';
  const heads = ['measurement', 'check', 'values', 'min', 'median', 'p99', 'max'];
  const head = heads.map((each) => `<th scope="col">${each}</th>`).join('');
  return `<table class="figures"><thead><tr>${head}</tr></thead><tbody>\n${rows.join('\n')}\n</tbody></table>`;
}

function checkDetails(outcome: Outcome): string {
  const { check, result } = outcome;
  const { verdict, text, deviation, evidence, measurements } = result;
  const kind = className(verdict);
  const rows: [string, string][] = [
    ['Clause', check.clause],
    ['Sends', check.sends],
    ['Expects', check.expects],
    ['Found', text === '' ? verdict : `${verdict}: ${text}`],
    ...(deviation ? ([['Known', `${deviation.of}: ${deviation.what}`]] as [string, string][]) : []),
    ...flowFigures(evidence).map((flow): [string, string] => ['Packets', flowText(flow)]),
  ];
  const drawings = Object.entries(distributions(outcome)).map(([name, of]) => {
    const caption = `<figcaption><b>${escaped(name)}</b>: ${escaped(distributionText(of))}</figcaption>`;
    return `<figure>${caption}${histogram(name, measurements[name] ?? [], of)}</figure>`;
  });
  const list = rows.map(([name, value]) => `<div><dt>${name}</dt><dd>${escaped(value)}</dd></div>`).join('');
  const title = `${check.number} ${check.name}`;
  const ladder = `<div class="ladder" style="--packets: ${evidence.length}" data-check="${escaped(check.name)}" data-title="${escaped(title)}"></div>`;
  return [
    `<details class="check ${kind}" id="check-${escaped(check.name)}">`,
    `<summary><span class="number">${check.number}</span><span class="name">${escaped(check.name)}</span>`,
    `<span class="verdict">${verdict}</span><span class="title">${escaped(check.title)}</span>`,
    text === '' ? '' : `<span class="text">${escaped(text)}</span>`,
    `</summary><dl>${list}</dl>`,
    ...drawings,
    evidence.length === 0 ? '' : ladder,
    '</details>',
  ].join('');
}

/** Returns the figures of a pair of queue pairs that are not zero. */
function flowText(flow: FlowFigures): string {
  const { src_ipv4, src_ipv6, src_qp, dest_ipv4, dest_ipv6, dest_qp, first_timestamp, last_timestamp, ...counts } =
    flow;
  const end = (ip: string | undefined, qp: number | undefined) => `${ip} qp ${qp ?? '?'}`;
  const ends = `${end(src_ipv4 ?? src_ipv6, src_qp)} – ${end(dest_ipv4 ?? dest_ipv6, dest_qp)}`;
  const figures = Object.entries(counts).filter(([, count]) => count > 0);
  return `${ends} in ${valueText(last_timestamp - first_timestamp, 'ns')}: ${figures.map((each) => each.join(' ')).join(', ')}`;
}
