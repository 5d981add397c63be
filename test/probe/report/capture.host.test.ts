// The packets of a run as pcapng: read back by our reader, and by Wireshark's where it is installed.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readCapture } from '../../../src/probe/capture/read.js';
import { probeCapture } from '../../../src/probe/report/capture.js';
import { outcomes } from '../../../src/probe/report/run.js';
import { programPrivilege, testIf } from '../../kit/privileges.js';
import { doubleRun } from './runs.js';

test('a capture has all packets of all checks, with their times and directions', async () => {
  const run = await doubleRun('nakLate');
  const { packets } = readCapture(probeCapture(run));
  const evidence = outcomes(run).flatMap(({ result }) => result.evidence);
  expect(new Set(packets.map(({ linkType }) => linkType))).toEqual(new Set([1]));
  expect(packets.map(({ data }) => data)).toEqual(evidence.map(({ frame }) => frame));
  expect(packets.map(({ direction }) => direction)).toEqual(
    evidence.map(({ direction }) => (direction === 'in' ? 1 : 2)),
  );
  const start = BigInt(run.date.getTime()) * 1_000_000n;
  const first = evidence[0]?.at ?? 0;
  expect(packets.map(({ time }) => time)).toEqual(evidence.map(({ at }) => start + BigInt(Math.round(at - first))));
});

test('a capture may have the packets of one check', async () => {
  const run = await doubleRun();
  const { packets } = readCapture(probeCapture(run, ['psn-gap']));
  const { evidence = [] } = run.results.find(({ name }) => name === 'psn-gap') ?? {};
  expect(packets.map(({ data }) => data)).toEqual(evidence.map(({ frame }) => frame));
  expect(probeCapture(run, ['none'])).toHaveLength(0);
});

testIf(programPrivilege('tshark'), 'Wireshark shows what a check is, and its verdict, as comments', async () => {
  const run = await doubleRun('nakLate');
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-report-'));
  try {
    const path = join(folder, 'probe.pcapng');
    writeFileSync(path, probeCapture(run, ['migreq', 'nak-generation']));
    const fields = ['frame.number', 'frame.comment'].flatMap((field) => ['-e', field]);
    const text = execFileSync('tshark', ['-r', path, '-T', 'fields', ...fields], { encoding: 'utf8', stdio: 'pipe' });
    expect(text).toMatch(/^1\tcheck 4 migreq: /);
    expect(text).toMatch(/^2\tpass$/m);
    expect(text).toMatch(/check 22 nak-generation: /);
    expect(text).toMatch(/fails: .*ms/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
