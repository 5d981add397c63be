// A peer with one bug at a time: the check that is meant for it finds it, and no other check does.
import { describe, expect, test } from 'vitest';
import type { ResponderCheck } from '../../../src/probe/checks/check.js';
import { CHECKS } from '../../../src/probe/checks/checks.js';
import { PERFORMANCE_CHECKS } from '../../../src/probe/checks/performance.js';
import { runCheck, runChecks } from '../../../src/probe/checks/run.js';
import { isPermitted, type Operation } from '../../../src/probe/checks/target.js';
import { Double } from './double.js';
import { BUGS, type Bug } from './doublebugs.js';
import { MANAGER_BUGS, type ManagerBug } from './doublemanager.js';
import { REQUESTER_BUGS, type RequesterBug } from './doublerequester.js';

type AnyBug = Bug | RequesterBug | ManagerBug;

/** Checks that measure by many packets: they run against a correct peer, and with the bugs meant for them. */
const MEASURING: ReadonlySet<string> = new Set([
  'cnp-rate',
  'answered-at-once',
  ...PERFORMANCE_CHECKS.map(({ name }) => name),
]);
const QUICK = CHECKS.filter(({ name }) => !MEASURING.has(name));

/** Names of the checks that find something, with their verdicts. */
async function complaints(bug?: AnyBug, only?: Operation): Promise<string[]> {
  const found: string[] = [];
  const isMeasured = bug === undefined || FOUND[bug].some((one) => MEASURING.has(one.split(':')[0] as string));
  const checks = isMeasured ? CHECKS : QUICK;
  for await (const { name, verdict } of runChecks(checks, new Double(bug, only), { isIntrusive: true }))
    if (verdict === 'fails' || verdict === 'deviates') found.push(`${name}: ${verdict}`);
  return found.sort();
}

test('a correct peer passes every check', async () => {
  expect(await complaints()).toEqual([]);
});

/**
 * The checks that find each bug. Several checks find some bugs, because all need the part that the bug spoils: a
 * duplicate across the wrap of PSNs, a packet to another queue pair, the last packet of a READ, more than one gap, the
 * ACK timer, the answer to an RNR NAK, a bad key that puts a queue pair into error.
 */
const FOUND: Readonly<Record<AnyBug, readonly string[]>> = {
  icrcWrong: ['icrc: fails'],
  icrcPadWrong: ['icrc: deviates'],
  icrcUnchecked: ['damaged-icrc: fails'],
  reservedRefused: ['reserved-bits: fails'],
  migReqZero: ['migreq: deviates'],
  mayFragment: ['ipv4-header: fails'],
  portChecked: ['source-port: fails'],
  ecnRefused: ['ecn-capable: fails'],
  versionUnchecked: ['malformed: fails'],
  reservedOpcodeSilent: ['reserved-opcode: deviates'],
  pkeyUnchecked: ['partition-key: fails'],
  sourceUnchecked: ['foreign-source: fails'],
  queueUnchecked: ['rc-to-datagrams: fails', 'unknown-queue-pair: fails'],
  ackOfTheFuture: ['ack-request: fails'],
  msnEarly: ['ack-in-message: fails'],
  msnStale: ['msn: fails'],
  tooManyCredits: ['credits: fails'],
  duplicateExecuted: ['duplicate-write: fails', 'psn-wrap: fails'],
  duplicateSilent: ['duplicate-write: fails', 'psn-wrap: fails'],
  duplicateSendExecuted: ['duplicate-send: fails'],
  readPsnStuck: ['duplicate-read: fails', 'read-responses: fails'],
  readShort: ['duplicate-read: fails', 'read-responses: fails'],
  readNoMiddle: ['read-responses: fails'],
  duplicateReadSilent: ['duplicate-read: fails'],
  atomicOnlyReads: ['atomic-values: fails'],
  compareIgnored: ['atomic-values: fails'],
  duplicateAtomicTwice: ['duplicate-atomic: fails'],
  duplicateAtomicWrong: ['duplicate-atomic: deviates'],
  nakPsnWrong: ['psn-gap: fails'],
  nakRepeated: ['psn-gap: fails'],
  nakOnceOnly: ['nak-generation: fails', 'psn-gap: fails'],
  nakLate: ['nak-generation: fails'],
  rnrCodeWrong: ['rnr-nak: fails'],
  rnrPsnWrong: ['rnr-nak: fails'],
  rnrGoesOn: ['rnr-drops-the-rest: fails'],
  rnrThenNak: ['rnr-drops-the-rest: deviates'],
  keyUncheckedWrite: ['bad-key-write', 'error-after-nak', 'error-execution', 'error-repeats'].map(
    (name) => `${name}: fails`,
  ),
  keyUncheckedRead: ['bad-key-read: fails'],
  keyUncheckedAtomic: ['bad-key-atomic: fails'],
  nakKeyPsnWrong: ['bad-key-write: fails'],
  aliveAfterNak: ['error-after-nak: fails'],
  rightsUnchecked: ['no-write-right: fails'],
  rightsCode: ['no-write-right: deviates'],
  boundsUnchecked: ['write-over-end: fails'],
  boundsLate: ['write-over-end: fails'],
  readBoundsUnchecked: ['read-over-end: fails'],
  zeroLengthChecked: ['zero-length: deviates'],
  zeroLengthWriteChecked: ['zero-length: fails'],
  middleShort: ['short-middle: fails'],
  lengthUnchecked: ['wrong-length: fails'],
  sequenceUnchecked: ['opcode-sequence: fails'],
  middleDropped: ['opcode-sequence: fails'],
  unalignedAccepted: ['unaligned-atomic: fails'],
  longSendCut: ['long-send: fails'],
  longSendCode: ['long-send: deviates'],
  invalidateNak: ['invalidate-bad-key: deviates'],
  wrapBroken: ['psn-wrap: fails'],
  noCnp: ['cnp: deviates'],
  cnpFlood: ['cnp: fails'],
  cnpPsn: ['cnp-layout: fails'],
  cnpShort: ['cnp-layout: fails'],
  cnpNoBecn: ['cnp-layout: fails'],
  cnpWithNak: ['nak-without-cnp: deviates'],
  ucTaken: ['wrong-transport: fails'],
  udTaken: ['wrong-transport: fails'],
  datagramsAnswer: ['rc-to-datagrams: fails'],
  priorityTagDropped: ['priority-tag: fails'],
  tagOfOwn: ['priority-tag: fails'],
  vlanUnchecked: ['foreign-vlan: fails'],
  gapStopsOthers: ['beside-losses: fails'],
  repairSpoilsOthers: ['beside-losses: fails'],
  oldAtomicTwice: ['old-atomic: fails'],
  oldAtomicWrong: ['old-atomic: fails'],
  longWriteSilent: ['answered-at-once: fails'],
  burstSkipped: ['message-rate: fails'],
  gapForgotten: ['flow-completion: fails'],
  repeatsInError: ['error-repeats: fails'],
  writesInError: ['error-execution: fails'],
  readsForgotten: ['too-many-reads: fails'],
  readsRefusedEarly: ['too-many-reads: fails'],
  readsOperational: ['too-many-reads: fails'],
  nakRestartsMessage: ['nak-reaction: fails'],
  nakSkips: ['nak-reaction: fails'],
  nakIgnored: ['nak-reaction: deviates'],
  timerEarly: ['ack-timeout: fails'],
  timerTicks: ['ack-timeout: deviates'],
  timerLate: ['ack-timeout: fails'],
  timerFloor: ['ack-timeout: deviates'],
  timerShort: [],
  timerShortSometimes: [],
  timerAdaptive: ['ack-timeout: deviates'],
  noTimer: ['ack-timeout: fails', 'future-ack: deviates', 'retry-count: fails', 'stale-ack: fails'],
  retryLess: ['retry-count: fails'],
  retryMore: ['retry-count: deviates'],
  retryForEver: ['retry-count: deviates'],
  nakCopiesCost: ['repeated-nak: fails'],
  nakStaleHeeded: ['nak-not-in-flight: fails'],
  nakFutureHeeded: ['nak-not-in-flight: fails'],
  rnrIgnored: ['rnr-wait: deviates'],
  rnrNever: ['rnr-retry-for-ever: fails', 'rnr-retry: fails', 'rnr-wait: fails'],
  rnrMore: ['rnr-retry: fails'],
  rnrEnds: ['rnr-retry-for-ever: fails'],
  creditsIgnored: ['no-credits: deviates'],
  creditsStall: ['no-credits: fails'],
  creditsHoldWrites: ['no-credits: fails'],
  ackOfOneOnly: ['ack-of-several: fails'],
  ackStaleTaken: ['stale-ack: fails'],
  ackStaleRepeats: ['stale-ack: fails'],
  ackFutureTaken: ['future-ack: deviates'],
  readByTimer: ['read-response-lost: deviates'],
  readWhole: ['read-response-lost: deviates'],
  readRestAtStart: ['read-response-lost: fails'],
  readGapTaken: ['read-response-lost: fails'],
  readDuplicateRepeats: ['duplicate-read-response: fails'],
  readOrderTaken: ['read-response-order: fails'],
  readLengthTaken: ['read-response-length: fails'],
  readShortResumed: ['read-response-length: deviates'],
  cnpIgnored: ['cnp-rate: deviates'],
  cnpForEver: ['cnp-rate: fails'],
  adaptiveFlood: ['adaptive-retransmission: fails'],
  repTransaction: ['rep-fields: fails'],
  repRemoteId: ['rep-fields: fails'],
  repFailover: ['rep-fields: fails'],
  repQueue: ['distinct-numbers: fails', 'rep-fields: fails'],
  repGuid: ['rep-fields: fails'],
  repDepth: ['rep-depths: fails'],
  duplicateReqSilent: ['duplicate-req: deviates'],
  duplicateReqNew: ['duplicate-req: fails'],
  repOnce: ['rep-repeated: fails'],
  repForEver: ['rep-repeated: fails'],
  repEarly: ['rep-repeated: fails'],
  rtuLateIgnored: ['late-rtu: fails'],
  rtuRefused: ['duplicate-rtu: fails'],
  dataIgnored: ['data-implies-rtu: deviates'],
  dataRefused: ['data-implies-rtu: fails'],
  mraIgnored: ['mra-of-rep: fails'],
  unknownServiceSilent: ['unknown-service: fails'],
  unknownServiceReason: ['unknown-service: fails'],
  unknownServiceIds: ['unknown-service: fails'],
  transportAccepted: ['other-transport: fails'],
  transportReason: ['other-transport: deviates'],
  addressAccepted: ['other-address: fails'],
  mtuAccepted: ['invalid-mtu: fails'],
  mtuReason: ['invalid-mtu: deviates'],
  privateDataAccepted: ['private-data-header: fails'],
  baseVersionAccepted: ['mad-header: fails'],
  classVersionAccepted: ['mad-header: fails'],
  methodAccepted: ['mad-header: fails'],
  sidrAccepted: ['unknown-datagram-service: fails'],
  sidrId: ['unknown-datagram-service: fails'],
  infoNone: ['class-port-info: deviates'],
  infoVersion: ['class-port-info: fails'],
  dreqSilent: ['dreq: fails'],
  drepTransaction: ['dreq: fails'],
  dreqOnce: ['duplicate-dreq: fails'],
  unknownDreqRefused: ['unknown-dreq: fails'],
  dreqQueueIgnored: ['dreq-of-other-queue: fails'],
  staleAccepted: ['stale-req: fails'],
  staleReason: ['stale-req: fails'],
  rejIgnored: ['rej-of-rep: fails'],
  ackAfterDrep: ['quiet-after-drep: fails'],
  psnCounts: ['psn-entropy: fails'],
  psnSteps: ['psn-entropy: fails'],
  psnShort: ['psn-entropy: fails'],
  icrcRare: ['icrc: fails'],
  pkeyOwn: ['own-partition: fails'],
  versionOwn: ['valid-headers: fails'],
  opcodeOwn: ['valid-headers: fails'],
  addressOwn: ['valid-headers: fails'],
  udpLengthOwn: ['valid-headers: fails'],
  reservedOwn: ['reserved-zero: fails'],
  migReqAlternates: ['migreq: fails'],
  portChanges: ['one-source-port: fails'],
  markedOwn: ['ecn-capable: fails'],
  ackWithPayload: ['packet-lengths: fails'],
  readKept: ['duplicate-read: fails'],
  readRestMiddle: ['duplicate-read: deviates'],
  readEndWrong: ['duplicate-read: fails'],
  invalidateAlive: ['invalidate-bad-key: deviates'],
  creditsNone: ['credits: deviates'],
  nakLateHalf: ['nak-generation: fails'],
  ackOld: [],
  nakSometimes: ['nak-reaction: deviates'],
  timerThird: ['ack-timeout: fails'],
  rnrTicks: ['rnr-wait: deviates'],
  messageShort: ['packet-lengths: fails'],
  mtuIgnored: ['packet-lengths: fails', 'smaller-mtu: fails'],
  emptySendRefused: ['empty-messages: fails'],
  emptyReadPadded: ['empty-messages: fails'],
  answersRepeats: ['answered-at-once: fails', 'beside-losses: fails', 'cnp: deviates', 'nak-generation: fails'],
  queueKeyUnchecked: ['wrong-queue-key: fails'],
  gidDeaf: ['every-gid: fails'],
  gidElsewhere: ['valid-headers: fails'],
  madShort: ['mad-format: fails'],
  madKey: ['mad-format: fails'],
  queueTwice: ['distinct-numbers: fails'],
  idTwice: ['distinct-numbers: fails'],
};

test.each(Object.keys({ ...BUGS, ...REQUESTER_BUGS, ...MANAGER_BUGS }) as AnyBug[])('%s', async (bug) => {
  expect(await complaints(bug)).toEqual(FOUND[bug]);
});

/** Some of the bugs that show at a peer with one operation. */
const ALONE = {
  WRITE: ['icrcWrong', 'duplicateSilent', 'nakPsnWrong', 'keyUncheckedWrite', 'rnrPsnWrong'],
  READ: ['icrcPadWrong', 'readPsnStuck', 'nakRepeated', 'keyUncheckedRead', 'msnStale'],
  ATOMIC: ['migReqZero', 'duplicateAtomicTwice', 'nakLate', 'unalignedAccepted', 'compareIgnored'],
  SEND: ['ackOfTheFuture', 'duplicateSendExecuted', 'longSendCode', 'msnEarly', 'cnpFlood'],
} as const satisfies Record<Operation, readonly Bug[]>;

describe.each(Object.keys(ALONE) as Operation[])('a peer that permits %s alone', (only) => {
  test('passes the checks that it reaches, and the others are not reachable', async () => {
    const answering = CHECKS.filter((check) => 'needs' in check);
    const expected = answering.map(({ name, needs }) => [name, isPermitted(needs, [only]) ? 'pass' : 'not reachable']);
    const found = new Map<string, string>();
    for await (const { name, verdict } of runChecks(answering, new Double(undefined, only), { isIntrusive: true }))
      found.set(name, verdict);
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));
    // checks of READs, of congestion and of resources need more
    expect([...found.values()].filter((verdict) => verdict === 'pass').length).toBeGreaterThan(25);
  });

  test.each(ALONE[only])('%s is found', async (bug) => {
    const found = await complaints(bug, only);
    expect(found.length).toBeGreaterThan(0);
    // a queue pair is put into error by the one operation that there is
    const others = bug.startsWith('keyUnchecked') ? ['error-after-nak: fails'] : [];
    expect([...FOUND[bug], ...others]).toEqual(expect.arrayContaining(found));
  });
});

test.each(['foreign-vlan', 'msn', 'psn-gap'])('a peer that posts its receives late passes: %s', async (name) => {
  const peer = new Double(undefined, 'SEND');
  peer.early = 2;
  const check = CHECKS.find((one) => one.name === name) as ResponderCheck;
  const { verdict, text } = await runCheck(check, peer);
  expect([verdict, text]).toEqual(['pass', expect.anything()]);
});

test('a check that passes names what the peer did not permit', async () => {
  const check = CHECKS.find(({ name }) => name === 'duplicate-write') as ResponderCheck;
  const { verdict, text } = await runCheck(check, new Double(undefined, 'WRITE'));
  expect([verdict, text]).toEqual(['pass', expect.stringContaining('memory was not looked at')]);
});
