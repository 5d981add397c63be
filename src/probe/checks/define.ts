/** Checks that a user writes. */
import type { Check, CmCheck, RequesterCheck, ResponderCheck, RuleCheck } from './check.js';

/** Names begin with a letter, as numbers name checks too. */
const NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
/** The key that tells the kinds of checks apart. */
const KINDS = ['needs', 'asks', 'connects'];
const TEXTS = ['title', 'clause', 'sends', 'expects'] as const;

/**
 * Returns a check that a user has written, after a look at what it says of itself.
 * @param check has `needs` for a peer that answers our requests, `asks` for one that sends requests to us, `connects`
 * for its connection manager
 * @throws TypeError with the member that is wrong
 * @example
 * export default defineCheck({
 *   number: 1000,
 *   name: 'empty-write',
 *   title: 'A WRITE of no bytes is acknowledged',
 *   clause: 'IBTA volume 1, chapter 9: RDMA WRITE',
 *   sends: 'a WRITE of no bytes',
 *   expects: 'its ACK',
 *   needs: { receives: false },
 *   async run(talk) {
 *     await talk.done(talk.write(new Uint8Array(0)), 'a WRITE of no bytes');
 *   },
 * });
 */
export function defineCheck(check: ResponderCheck): ResponderCheck;
/**
 * The same for a check of a peer that sends requests to us.
 * @throws TypeError with the member that is wrong
 */
export function defineCheck(check: RequesterCheck): RequesterCheck;
/**
 * The same for a check of a peer's connection manager.
 * @throws TypeError with the member that is wrong
 */
export function defineCheck(check: CmCheck): CmCheck;
/**
 * The same for a rule of every packet of the peer, which sends nothing.
 * @throws TypeError with the member that is wrong
 */
export function defineCheck(check: RuleCheck): RuleCheck;
export function defineCheck<T extends Check>(check: T): T {
  const { name, number } = check;
  const wrong = (rule: string) => new TypeError(`check ${name}: ${rule}`);
  if (typeof name !== 'string' || !NAME.test(name))
    throw new TypeError(`the name of a check is ${name}, must be lower-case words with hyphens between them`);
  if (!(Number.isInteger(number) && number >= 0)) throw wrong(`number is ${number}, must be an integer from 0`);
  for (const text of TEXTS)
    if (typeof check[text] !== 'string') throw wrong(`${text} is ${typeof check[text]}, must be a text`);
  const kinds = KINDS.filter((kind) => kind in check).length;
  if (kinds > 1 || (kinds === 0 && check.rule === undefined))
    throw wrong(`it must have one of ${KINDS.join(', ')}, or a rule`);
  if (kinds === 1 && typeof (check as { run?: unknown }).run !== 'function') throw wrong('run must be a function');
  if (check.rule !== undefined && typeof check.rule.judge !== 'function') throw wrong('rule.judge must be a function');
  if ('asks' in check && !(check.asks.anyOf?.length > 0)) throw wrong('asks.anyOf must name a kind of requests');
  return check;
}
