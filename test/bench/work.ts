import type { Work } from '../../bench/work.js';

/** Traffic of a test, of which some parts matter to it. */
export const WORK: Work = {
  kind: 'bulk',
  operation: 'WRITE',
  size: 1000,
  mtu: 1500,
  qps: 1,
  waiting: 'spin',
  warmMs: 1,
  ms: 1,
};
