/**
 * Checks whose verdict depends on times. On real time a busy host changes it, as it delays the test's own process;
 * card.test.ts and double.test.ts judge them exactly, in virtual time.
 */
export const JUDGED_BY_TIME: ReadonlySet<string> = new Set([
  ...['nak-reaction', 'read-response-lost', 'ack-timeout', 'retry-count', 'rnr-wait', 'cnp', 'cnp-layout', 'cnp-rate'],
]);
