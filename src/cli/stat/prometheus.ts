/** Counters in the Prometheus text format. */
import type { PublishedDevice } from '../../index.js';
import { qpnText } from '../hex.js';
import { type Metric, metricOf } from './metrics.js';

const PROGRAM: Metric = { name: 'program_info', type: 'gauge', help: 'Process and command of the device: always 1.' };
const PORT_UP: Metric = { name: 'port_up', type: 'gauge', help: 'Whether the port is active: 1, or 0.' };

/**
 * Returns all counters of devices and queue pairs, grouped by family. Labels name the device, not its process, so that
 * a restarted program continues its series; `wasm_roce_program_info` names the process. Of devices with the same name,
 * the second is called `name#2` and so on, in the order of their processes.
 */
export function prometheusText(devices: readonly PublishedDevice[]): string {
  const families = new Map<string, string[]>();
  const add = (prefix: string, metric: Metric, labels: Labels, value: number) => {
    const name = `${prefix}_${metric.name}`;
    let lines = families.get(name);
    if (lines === undefined) {
      lines = [`# HELP ${name} ${escapeHelp(metric.help)}`, `# TYPE ${name} ${metric.type}`];
      families.set(name, lines);
    }
    lines.push(`${name}${labelText(labels)} ${value}`);
  };
  const seen = new Map<string, number>();
  for (const published of [...devices].sort((a, b) => a.pid - b.pid)) {
    const { device, interface: end, link, state, counters, qps } = published;
    const count = (seen.get(published.name) ?? 0) + 1;
    seen.set(published.name, count);
    const labels = { name: count === 1 ? published.name : `${published.name}#${count}` };
    add('wasm_roce', PROGRAM, { ...labels, pid: `${published.pid}`, command: published.command }, 1);
    add('wasm_roce', PORT_UP, { ...labels, device, interface: end, link }, state === 'ACTIVE' ? 1 : 0);
    for (const [counter, value] of Object.entries(counters)) add('wasm_roce', metricOf(counter), labels, value);
    for (const qp of qps) {
      const ofQp = { ...labels, qp: qpnText(qp.qpNum), type: qp.type };
      for (const [counter, value] of Object.entries(qp.counters)) add('wasm_roce_qp', metricOf(counter), ofQp, value);
    }
  }
  return [...families.values()]
    .flat()
    .map((line) => `${line}\n`)
    .join('');
}

type Labels = Readonly<Record<string, string>>;

const escapeHelp = (text: string) => text.replace(/\\/g, '\\\\').replace(/\n/g, '\\n');

function labelText(labels: Labels): string {
  const escaped = (text: string) => escapeHelp(text).replace(/"/g, '\\"');
  return `{${Object.entries(labels)
    .map(([name, value]) => `${name}="${escaped(value)}"`)
    .join(',')}}`;
}
