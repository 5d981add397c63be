/** Runs checks against a peer, one after the other, each on a queue pair of its own. */
import { clearTimeout, setTimeout } from '../../base/timers.js';
import { waitFor } from '../../base/waiting.js';
import { Audit } from './audit.js';
import type { Check, CmCheck, RequesterCheck, ResponderCheck } from './check.js';
import { CmConversation } from './cmconversation.js';
import { CheckEnd } from './conversation.js';
import { DROP_CHECKS } from './headers.js';
import { LOSS_CHECK, lossOf, lossText, type PathLoss, showsLoss } from './loss.js';
import { CheckRecord } from './record.js';
import { ResponderConversation } from './responderconversation.js';
import type { CheckResult } from './result.js';
import { ANSWERS, AT_ONCE } from './rules.js';
import { Service } from './service.js';
import type { Target, Traffic } from './target.js';

/** The program to start on a peer so that it sends requests of a kind. */
const TOOLS: Readonly<Record<Traffic, string>> = { SEND: 'ib_send_bw', WRITE: 'ib_write_bw', READ: 'ib_read_bw' };
/** Time of one check (ms). The slowest ones wait for the timers of the peer, and take half a minute. */
const CHECK_TIME = 120_000;

/** A check that sends packets. */
type Talking = ResponderCheck | RequesterCheck | CmCheck;

/** Opens the services of the peer that a check needs, and runs it. @returns the reason if the peer offers none */
async function talk(check: Talking, target: Target, record: CheckRecord): Promise<string | undefined> {
  if ('needs' in check) {
    const peer = await target.responder(check.needs);
    if (typeof peer === 'string') return peer;
    await check.run(new ResponderConversation(check, peer, target, record));
  } else if ('connects' in check) {
    const peer = (await target.cm?.(check.connects)) ?? 'the connection manager of the peer is not reached';
    if (typeof peer === 'string') return peer;
    const manager = new CmConversation(check, peer, target, record);
    await manager.whole(() => check.run(manager));
  } else {
    const { anyOf } = check.asks;
    const peer = (await target.requester?.(check.asks)) ?? 'the peer sends no requests to us';
    const tools = anyOf.map((kind) => TOOLS[kind]).join(' or ');
    if (typeof peer === 'string')
      return target.requester ? peer : `${peer}: start ${tools} there as a client of this host`;
    const kind = anyOf.find((one) => peer.offers.includes(one));
    if (kind === undefined)
      return `the peer sends no ${anyOf.join(' or ')}: start ${tools} there as a client of this host`;
    await check.run(new Service(check, peer, kind, target, record));
  }
  return undefined;
}

/** Options of `runCheck`. */
export interface CheckOptions {
  /** Gives the check up, which then throws the reason. */
  readonly signal?: AbortSignal;
  /** The longest time that the check may take (ms). Default: 120,000. */
  readonly checkTime?: number;
}

/**
 * Runs one check. A rule of every packet is judged by the packets of this check.
 * @throws Error for what goes wrong outside the check itself, such as a link that closes; the reason of `signal`
 */
export async function runCheck(check: Check, target: Target, options: CheckOptions = {}): Promise<CheckResult> {
  const audit = new Audit([check], DROP_CHECKS);
  if (!('run' in check)) return audit.judged(check);
  const result = await converse(check, target, new CheckRecord(check, audit), options);
  return check.rule === undefined ? result : audit.judged(check, result);
}

/** Runs a check as far as it talks with the peer. */
async function converse(
  check: Talking,
  target: Target,
  record: CheckRecord,
  options: CheckOptions,
): Promise<CheckResult> {
  const { number, name } = check;
  const { evidence, measurements, notes } = record;
  const result = { number, name, measurements, evidence };
  try {
    const why = await within(talk(check, target, record), record.end, options);
    if (why !== undefined) return { ...result, verdict: 'not reachable', text: why };
    return { ...result, verdict: 'pass', text: [...notes].join('; ') };
  } catch (cause) {
    if (!(cause instanceof CheckEnd)) throw cause;
    const { verdict, message, deviation } = cause;
    const found = { ...result, verdict, text: message, ...(deviation && { deviation }) };
    return verdict === 'fails' || verdict === 'deviates' ? withoutAnswers(found, record) : found;
  } finally {
    // an answer is read after packets that were sent since it arrived
    evidence.sort((a, b) => a.at - b.at);
  }
}

/** Says of a check that has found something, and to which packets came that are no answers, that it may be by those. */
function withoutAnswers({ deviation, ...found }: CheckResult, { audit, dropped }: CheckRecord): CheckResult {
  if (dropped.size === 0) return { ...found, ...(deviation && { deviation }) };
  const why = [...dropped].map(
    ([{ rule, number, name }, n]) => `packets that ${rule?.broken} are no answers, ${n} came (check ${number} ${name})`,
  );
  const isReported = [...dropped.keys()].every((one) => audit?.reports(one));
  const text = `${why.join('; ')}; without them: ${found.text}`;
  return { ...found, verdict: isReported ? 'not applicable' : 'fails', text };
}

/** Waits for a check, and ends its conversations. @throws CheckEnd when it takes too long; the reason of the signal */
async function within<T>(
  check: Promise<T>,
  end: AbortController,
  { checkTime = CHECK_TIME, signal }: CheckOptions,
): Promise<T> {
  const stop = () => end.abort(signal?.reason);
  const tooLong = () => end.abort(new CheckEnd('fails', `no verdict within ${checkTime / 1000} s: it was given up`));
  const timer = setTimeout(tooLong, checkTime);
  signal?.addEventListener('abort', stop);
  if (signal?.aborted) stop();
  try {
    return await waitFor(check, '', { signal: end.signal });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}

/** The peer answers no more, or the time of the run is over. */
export class RunEnded extends Error {
  /** Its name. */
  override readonly name = 'RunEnded';
}

/** The checks of `runChecks`, and their limits of time. */
export interface CheckRunOptions extends CheckOptions {
  /** Also checks that send malformed packets or end their connection by an error. Default: false. */
  readonly isIntrusive?: boolean;
  /** The longest time that the whole run may take (ms). Default: no limit. */
  readonly time?: number;
}

/** Begins the text of a check that a run did not get to. */
const NOT_RUN = 'not run: ';
/** Over a path that loses packets: attempts at most, those that find something without a loss, the same deviation. */
const [ATTEMPTS, CLEAN, SAME] = [6, 3, 2];
/** Repetitions that a busy host may cause. */
const LATE = 2;
const INTRUSIVE = 'intrusive: it sends malformed packets or ends its connection by an error';

/**
 * Runs checks in their order, and gives each result as it is found; those of checks with a rule when all have run.
 * When the run ends early, the check that was running and those that were not run are not applicable, with the reason;
 * the rules are judged by the packets so far.
 * @throws Error after the last result, when the run has ended early: the reason of `signal`; `RunEnded` when the peer
 * answers no more or the time is over; what went wrong outside the checks, such as a link that closes
 */
export async function* runChecks(
  checks: readonly Check[],
  target: Target,
  { isIntrusive, time, ...options }: CheckRunOptions = {},
): AsyncGenerator<CheckResult> {
  const run = new Run(checks, target, options);
  const timer =
    time === undefined ? undefined : setTimeout(() => run.stop(new RunEnded(`${time / 1000} s are over`)), time);
  const stop = () => run.stop(options.signal?.reason);
  options.signal?.addEventListener('abort', stop);
  if (options.signal?.aborted) stop();
  try {
    /** The results of the rules for all packets. */
    const judged = new Map<Check, CheckResult | undefined>();
    for (const check of checks) {
      const isLeft = check.isIntrusive && !isIntrusive;
      const result = !('run' in check) ? undefined : isLeft ? unapplied(check, INTRUSIVE) : await run.next(check);
      if (check.rule === undefined && result !== undefined) yield result;
      else judged.set(check, result);
    }
    for (const [check, result] of judged) yield run.judged(check, result);
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener('abort', stop);
  }
  run.throwIfEnded();
}

/** Returns whether a result is that of a check that a run did not get to. */
export const isNotRun = ({ verdict, text }: CheckResult): boolean =>
  verdict === 'not applicable' && text.startsWith(NOT_RUN);

/** Returns whether a check has found something. */
const isFinding = ({ verdict }: CheckResult): boolean => verdict === 'fails' || verdict === 'deviates';

/** Returns the result of a check that does not apply, or was not run. */
const unapplied = ({ number, name }: Check, text: string): CheckResult => ({
  ...{ number, name, verdict: 'not applicable', text, measurements: {}, evidence: [] },
});

/** One run: what all its checks share, and why it ends before the last of them. */
class Run {
  readonly #target: Target;
  readonly #options: CheckOptions;
  readonly #audit: Audit;
  readonly #end = new AbortController();
  /** The last check in which a packet of the peer came. */
  #last: Check | undefined;
  /** The finding of a peer that answers no more. */
  #silence: string | undefined;
  /** The result of `LOSS_CHECK`, since a check has found something. */
  #measured: CheckResult | undefined;

  constructor(checks: readonly Check[], target: Target, options: CheckOptions) {
    this.#audit = new Audit(checks, DROP_CHECKS);
    this.#target = target;
    this.#options = { ...options, signal: this.#end.signal };
  }

  /** Ends the run: the check that is running is given up. */
  stop(reason: unknown): void {
    this.#end.abort(reason);
  }

  /** @throws Error the reason for which the run has ended early */
  throwIfEnded(): void {
    this.#end.signal.throwIfAborted();
  }

  /** Runs the next check, unless the run has ended. */
  async next(check: Talking): Promise<CheckResult> {
    if (this.#end.signal.aborted) return unapplied(check, `${NOT_RUN}${this.#reason}`);
    if (check === LOSS_CHECK) return await this.#lossResult();
    const result = await this.#attempt(check);
    if (this.#end.signal.aborted || !isFinding(result)) return result;
    const loss = lossOf(await this.#lossResult());
    return loss === undefined || loss.requests + loss.answers === 0 ? result : await this.#confirm(check, result, loss);
  }

  /** Runs a check once. */
  async #attempt(check: Talking): Promise<CheckResult> {
    const record = new CheckRecord(check, this.#audit);
    let result: CheckResult;
    try {
      result = await converse(check, this.#target, record, this.#options);
    } catch (reason) {
      this.stop(reason);
      const { evidence, measurements } = record;
      result = { ...unapplied(check, `not finished: ${this.#reason}`), evidence, measurements };
    }
    try {
      await this.#unlessEnded(this.#target.release?.());
      await this.#look(check, record);
    } catch (reason) {
      this.stop(reason);
    }
    return result;
  }

  async #lossResult(): Promise<CheckResult> {
    this.#measured ??= await this.#attempt(LOSS_CHECK);
    return this.#measured;
  }

  /**
   * Runs a check again that has found something over a path that loses packets. What it finds is of the peer when it is
   * found without a lost packet so often that this is no chance, or when the same known deviation shows again.
   */
  async #confirm(check: Talking, first: CheckResult, loss: PathLoss): Promise<CheckResult> {
    const attempts = [first];
    for (let last = first; ; attempts.push(last)) {
      const same = attempts.filter(({ deviation }) => deviation !== undefined && deviation === last.deviation);
      if (same.length >= SAME) return last;
      const clean = attempts.filter(({ evidence }) => !showsLoss(evidence));
      if (clean.length >= CLEAN) return clean.at(-1) as CheckResult;
      const said = lossText(loss);
      if (attempts.length === ATTEMPTS)
        return {
          ...unapplied(check, `${said}, and in each of ${ATTEMPTS} attempts: ${last.text}`),
          evidence: last.evidence,
        };
      last = await this.#attempt(check);
      if (this.#end.signal.aborted) return last;
      const passed = `passed in attempt ${attempts.length + 1}, as ${said}`;
      if (!isFinding(last)) return { ...last, text: [last.text, passed].filter((text) => text !== '').join('; ') };
    }
  }

  /** Returns the result of a check with a rule. */
  judged(check: Check, own: CheckResult | undefined): CheckResult {
    const result = this.#audit.judged(check, own);
    if (check.rule === ANSWERS && this.#silence !== undefined)
      return { ...result, verdict: 'fails', text: this.#silence };
    return check.rule === AT_ONCE && own?.verdict === 'pass' ? this.#atOnce(result) : result;
  }

  /** A peer whose path loses nothing does not need repetitions. A busy host may cause one or two. */
  #atOnce(result: CheckResult): CheckResult {
    const { count, first } = this.#audit.repetitions;
    const loss = lossOf(result);
    if (count <= LATE || first === undefined || loss === undefined || loss.requests + loss.answers > 0) return result;
    const where = `the first ones in check ${first.number} ${first.name}`;
    const text = `${count} times requests were answered only when they were repeated, ${where}`;
    return { ...result, verdict: 'fails', text: `${text}; the path has lost none of ${loss.sent} requests` };
  }

  /** Looks whether the peer still answers after a check in which no packet of it came. */
  async #look(check: Check, { evidence }: CheckRecord): Promise<void> {
    if (evidence.some(({ direction }) => direction === 'in')) this.#last = check;
    else if (this.#last !== undefined && (await this.#unlessEnded(this.#target.answers?.())) === false) {
      const [last, first] = [this.#last, check].map(({ number, name }) => `check ${number} ${name}`);
      this.#silence = `the peer stopped answering after ${last}: no packet came in ${first}, and no connection since`;
      this.stop(new RunEnded(this.#silence));
    }
  }

  async #unlessEnded<T>(work: Promise<T> | undefined): Promise<T | undefined> {
    return await waitFor(Promise.resolve(work), '', { signal: this.#end.signal });
  }

  get #reason(): string {
    const { reason } = this.#end.signal;
    return reason instanceof Error ? reason.message : String(reason);
  }
}
