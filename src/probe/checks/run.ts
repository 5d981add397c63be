/** Runs checks against a peer, one after the other, each on a queue pair of its own. */
import type { Check, CheckResult, Evidence, Target, Traffic } from './check.js';
import { CmTalk } from './cmtalk.js';
import { Finding } from './conversation.js';
import { Service } from './service.js';
import { Talk } from './talk.js';

/** What to start on a peer so that it sends requests of a kind. */
const TOOLS: Readonly<Record<Traffic, string>> = { SEND: 'ib_send_bw', WRITE: 'ib_write_bw', READ: 'ib_read_bw' };

/** Opens what a check talks with. @returns what to start on the peer, when it does not offer that */
async function open(check: Check, target: Target, result: Pick<CheckResult, 'evidence' | 'measurements'>) {
  const evidence = result.evidence as Evidence[];
  const measurements = result.measurements as Record<string, number[]>;
  if ('needs' in check) {
    const peer = await target.responder(check.needs);
    if (typeof peer === 'string') return peer;
    const talk = new Talk(check, peer, target, evidence, measurements);
    return { talk, run: () => check.run(talk) };
  }
  if ('connects' in check) {
    const peer = (await target.cm?.(check.connects)) ?? 'the connection manager of the peer is not reached';
    if (typeof peer === 'string') return peer;
    const talk = new CmTalk(check, peer, target, evidence, measurements);
    return { talk, run: () => talk.whole(() => check.run(talk)) };
  }
  const { anyOf } = check.asks;
  const peer = (await target.requester?.(check.asks)) ?? 'the peer sends no requests to us';
  const tools = anyOf.map((kind) => TOOLS[kind]).join(' or ');
  if (typeof peer === 'string')
    return target.requester ? peer : `${peer}: start ${tools} there as a client of this host`;
  const kind = anyOf.find((one) => peer.offers.includes(one));
  if (kind === undefined)
    return `the peer sends no ${anyOf.join(' or ')}: start ${tools} there as a client of this host`;
  const talk = new Service(check, peer, kind, target, evidence, measurements);
  return { talk, run: () => check.run(talk) };
}

/** Runs one check. What goes wrong outside the check itself, such as a link that closes, is thrown. */
export async function runCheck(check: Check, target: Target): Promise<CheckResult> {
  const { number, name } = check;
  const evidence: Evidence[] = [];
  const result = { number, name, measurements: {}, evidence };
  const opened = await open(check, target, result);
  if (typeof opened === 'string') return { ...result, verdict: 'not reachable', text: opened };
  try {
    await opened.run();
    return { ...result, verdict: 'pass', text: [...opened.talk.notes].join('; ') };
  } catch (cause) {
    if (!(cause instanceof Finding)) throw cause;
    const { verdict, message, deviation } = cause;
    return { ...result, verdict, text: message, ...(deviation && { deviation }) };
  } finally {
    // an answer is read after packets that were sent since it arrived
    evidence.sort((a, b) => a.at - b.at);
  }
}

/** What `runChecks` runs. */
export interface CheckRunOptions {
  /** Also checks that send malformed packets or end their connection by an error. Default: false. */
  readonly isIntrusive?: boolean;
}

/** Runs checks in their order, and gives each result as it is found. */
export async function* runChecks(
  checks: readonly Check[],
  target: Target,
  options: CheckRunOptions = {},
): AsyncGenerator<CheckResult> {
  for (const check of checks) {
    if (check.isIntrusive && !options.isIntrusive) {
      const { number, name } = check;
      const why = 'intrusive: it sends malformed packets or ends its connection by an error';
      yield { number, name, verdict: 'not applicable', text: why, measurements: {}, evidence: [] };
      continue;
    }
    let result: CheckResult;
    try {
      result = await runCheck(check, target);
    } finally {
      await target.release?.();
    }
    yield result;
  }
}
