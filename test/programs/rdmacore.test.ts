// rdma-core's own tests (pyverbs) on a card of the library.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { PYVERBS_MODULES } from './catalogue.js';
import { built, launch } from './ends.js';

/** Debian has them among the documents of python3-pyverbs, which small installations leave out. */
const TESTS = '/usr/share/doc/rdma-core/tests';
const present = { ok: existsSync(TESTS), reason: 'the tests of rdma-core are missing: python3-pyverbs' };

/** Reasons of skipped tests: the card, or the machines of the tests, do not have these. */
const REASONS = [
  /^Device memory is not supported$/,
  /^Create XRCD is not supported$/,
  /^Create Raw Packet QP with.* is not supported$/,
  // memory of a graphics processor
  /dmabuf is not supported by/,
  /^There are no huge pages of size 2M allocated$/,
  // there is no empty one
  /^All gid indices populated, cannot check bad flow$/,
];

interface Outcome {
  readonly test: string;
  readonly outcome: 'passed' | 'skipped' | 'failed';
  readonly text: string;
}

describeIf(all(built, netPrivilege(), present, programPrivilege('setpriv')), "rdma-core's tests", () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-pyverbs-'));
  let host: PeerNamespace;
  beforeAll(async () => {
    host = await PeerNamespace.open('pyv', 202);
    cpSync(TESTS, join(folder, 'tests'), { recursive: true });
    execFileSync('sh', ['-c', 'gunzip "$0"/tests/*.gz', folder]);
  });
  afterAll(() => {
    host.close();
    rmSync(folder, { recursive: true });
  });

  test.each(PYVERBS_MODULES)('pass, except for what the card does not have: %s', async (name) => {
    const script = join(import.meta.dirname, 'rdmacore.py');
    const words = ['/usr/bin/python3', script, folder, 'wroce0', '10.202.0.2', name];
    const { status, stdout, stderr } = await launch({ interface: host.far, enter: ['nsenter', ...host.enter] }, words)
      .ended;
    expect([status, stderr]).toEqual([0, '']);
    const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
    const outcomes = lines.map((line) => JSON.parse(line) as Outcome);
    expect(outcomes.filter(({ outcome }) => outcome === 'failed')).toEqual([]);
    const skipped = outcomes.filter(({ outcome }) => outcome === 'skipped');
    expect(skipped.filter(({ text }) => !REASONS.some((reason) => reason.test(text)))).toEqual([]);
    expect(outcomes.length).toBeGreaterThan(skipped.length);
  });
});
