/** Counters in the text format that Prometheus scrapes. */
import type { PublishedDevice } from '../../index.js';

/** What the link tells that is no count. */
const GAUGES = new Set(['link.rx_buffer_bytes', 'link.port_not_held']);

/** @returns all counters of devices and queue pairs, one family after the other */
export function prometheusText(devices: readonly PublishedDevice[]): string {
  const families = new Map<string, string[]>();
  const add = (name: string, labels: Labels, value: number) => {
    const lines = families.get(name) ?? [];
    families.set(name, lines);
    lines.push(`${name}${labelText(labels)} ${value}`);
  };
  for (const { name, pid, device, interface: end, link, state, counters, qps } of devices) {
    const labels = { name, pid: String(pid) };
    add('wasm_roce_port_up', { ...labels, device, interface: end, link }, state === 'ACTIVE' ? 1 : 0);
    for (const [counter, value] of Object.entries(counters)) add(familyOf('wasm_roce', counter), labels, value);
    for (const qp of qps) {
      const ofQp = { ...labels, qp: `0x${qp.qpNum.toString(16).padStart(6, '0')}`, type: qp.type };
      for (const [counter, value] of Object.entries(qp.counters)) add(familyOf('wasm_roce_qp', counter), ofQp, value);
    }
  }
  return [...families]
    .flatMap(([name, lines]) => [`# TYPE ${name} ${name.endsWith('_total') ? 'counter' : 'gauge'}`, ...lines])
    .map((line) => `${line}\n`)
    .join('');
}

type Labels = Readonly<Record<string, string>>;

function familyOf(prefix: string, counter: string): string {
  return `${prefix}_${counter.replace(/\W/g, '_')}${GAUGES.has(counter) ? '' : '_total'}`;
}

function labelText(labels: Labels): string {
  const escaped = (text: string) => text.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n');
  return `{${Object.entries(labels)
    .map(([name, value]) => `${name}="${escaped(value)}"`)
    .join(',')}}`;
}
