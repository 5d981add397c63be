/** A rule of faults at work: which packets it hits, and what it does to them. */
import { Random } from '../../link/fault/random.js';
import { decodeRoce, underived } from '../packet/decode.js';
import { encode } from '../packet/encode.js';
import type { Decoded } from '../packet/frame.js';
import type { Expression, FaultRule, Field, SourcePosition } from '../script/ast.js';
import { ScriptError } from '../script/error.js';
import { type Draft, FIELDS, type FieldRule } from '../script/fields.js';
import {
  fits,
  isEqual,
  isMessage,
  MESSAGES,
  OPERATIONS,
  unknownField,
  unknownOperation,
  wanted,
} from '../script/packets.js';
import { parseFaultRule } from '../script/parse.js';
import { Evaluator, kindOf, type Value } from '../script/values.js';
import { withIdentification } from './frames.js';
import { parseHostFault } from './hostfault.js';
import { type Change, isRepeatable, isResponse } from './packets.js';

/** A rule remembers so many packets, to recognize retransmissions, or up to twice as many. */
const MIN_SEEN = 65_536;
/** Number of PSNs. */
const PSNS = 2 ** 24;

/** A packet that has matched. */
interface Transmissions {
  /** Its number among those that have. */
  readonly number: number;
  times: number;
}

type Condition = (frame: Decoded) => boolean;
type Rewrite = (draft: Draft) => void;

function fail(place: SourcePosition, text: string): never {
  throw new ScriptError('fault', place, text);
}
const EVALUATOR = new Evaluator(new Map(), fail);

/**
 * Checks a rule of faults.
 * @throws ScriptError with the column of the mistake; TypeError for a mistake in an event of the host
 */
export function checkFaultRule(text: string): void {
  if (parseHostFault(text) === undefined) new FaultMatcher(text);
}

/** One rule, with its counts. */
export class FaultMatcher {
  readonly #rule: FaultRule;
  readonly #conditions: readonly Condition[];
  readonly #rewrites: readonly Rewrite[];
  readonly #delayNs: number;
  readonly #random: Random;
  /**
   * Number and transmissions of the latest matching packets, by destination, kind and PSN. The older half is forgotten
   * at once: a Map from which the oldest entry is taken away each time is slow.
   */
  #seen = new Map<number, Transmissions>();
  #seenBefore = new Map<number, Transmissions>();
  #matched = 0;
  #hits = 0;

  /**
   * @param seed of a rule by chance: the same seed hits the same packets of the same traffic
   * @throws ScriptError with the column of the mistake
   */
  constructor(
    readonly text: string,
    seed = 1,
  ) {
    this.#random = new Random(seed);
    const rule = parseFaultRule(text);
    const { action, packet } = rule;
    this.#rule = rule;
    this.#delayNs = action.kind === 'delay' ? EVALUATOR.nanoseconds(action.duration) : 0;
    const rewritten = action.kind === 'rewrite' ? action.fields : [];
    this.#rewrites = rewritten.map(rewriteOf);
    // a packet without a field that the rule rewrites does not count
    const present = rewritten.map(
      (field): Condition =>
        (frame) =>
          ruleOf(field).read(frame) !== undefined,
    );
    this.#conditions = [operationIs(packet.operation, packet), ...packet.fields.map(conditionOf), ...present];
  }

  get direction(): FaultRule['direction'] {
    return this.#rule.direction;
  }

  /** Number of packets that the rule has hit. */
  get count(): number {
    return this.#hits;
  }

  /**
   * Counts a packet of the rule's direction.
   * @param stream number of its destination
   * @returns whether the rule hits it
   */
  hits(frame: Decoded, stream: number): boolean {
    const { queue, which, times } = this.#rule;
    if (queue !== null && queue.value !== (queue.kind === 'nth' ? stream : frame.bth.destQp)) return false;
    const packet = this.#transmission(frame, stream);
    if (packet === undefined) return false;
    const { first, last, step, chance } = which;
    const isChosen = packet.number >= first && packet.number <= last && (packet.number - first) % step === 0;
    if (!isChosen || packet.times > times) return false;
    if (chance < 1 && this.#random.unit() >= chance) return false;
    this.#hits++;
    return true;
  }

  /** Returns what becomes of a frame that the rule hits. A frame that would not fit into a slot stays as it is. */
  apply(change: Change, slotBytes: number): Change {
    const { action } = this.#rule;
    switch (action.kind) {
      case 'drop':
        return { ...change, copies: 0 };
      case 'duplicate':
        return { ...change, copies: change.copies === 0 ? 0 : change.copies + 1 };
      case 'delay':
        return { ...change, delayNs: change.delayNs + this.#delayNs };
      case 'reorder':
        return { ...change, overtakers: change.overtakers + action.count };
      default: {
        const frame = this.#changed(change.frame);
        return frame.length > slotBytes ? change : { ...change, frame };
      }
    }
  }

  #changed(bytes: Uint8Array): Uint8Array {
    const decoded = decodeRoce(withIdentification(bytes));
    if (decoded === undefined) return bytes;
    const draft: Draft = structuredClone(underived(decoded));
    draft.breaksIcrc = !decoded.icrcOk;
    if (this.#rule.action.kind === 'corrupt') draft.breaksIcrc = true;
    if (this.#rule.action.kind === 'mark') FIELDS.get('ip.ecn')?.write(draft, 3n as never);
    for (const rewrite of this.#rewrites) rewrite(draft);
    const frame = encode(draft);
    const last = frame.length - decoded.trailer.length - 1;
    if (draft.breaksIcrc) frame[last] = (frame[last] as number) ^ 1;
    return frame;
  }

  /**
   * Returns the number of a packet among those that match, and how often it has been sent; undefined if it does not
   * match. A retransmission has the PSN of a packet that matched, whatever its operation: a READ from the gap turns
   * the middle of a response into its first packet.
   */
  #transmission(frame: Decoded, stream: number): Readonly<Transmissions> | undefined {
    const key = (stream * 2 + Number(isResponse(frame))) * PSNS + frame.bth.psn;
    const known = isRepeatable(frame) ? (this.#seen.get(key) ?? this.#seenBefore.get(key)) : undefined;
    if (known !== undefined) {
      known.times++;
      return known;
    }
    if (!this.#conditions.every((isMet) => isMet(frame))) return undefined;
    const packet = { number: ++this.#matched, times: 1 };
    if (isRepeatable(frame)) this.#seen.set(key, packet);
    if (this.#seen.size > MIN_SEEN) {
      this.#seenBefore = this.#seen;
      this.#seen = new Map();
    }
    return packet;
  }
}

function operationIs(name: string, place: SourcePosition): Condition {
  if (name === '*') return () => true;
  if (isMessage(name)) {
    const parts = [...OPERATIONS].filter(([part]) => part.startsWith(`${name}_`)).map(([, { opcode }]) => opcode);
    return ({ bth }) => parts.includes(bth.opcode);
  }
  const { opcode, syndromeClass } = OPERATIONS.get(name) ?? fail(place, unknownOperation(name, MESSAGES));
  return ({ bth, aeth }) =>
    bth.opcode === opcode && (syndromeClass === undefined || syndromeClass === (aeth?.syndrome ?? 0) >>> 5);
}

const ruleOf = (field: Field): FieldRule => FIELDS.get(field.name) ?? fail(field, unknownField(field.name));

/** Returns the value of an expression, cut to the field. */
function valueFor(field: Field, expression: Expression): Value {
  const { bits = 64, type } = ruleOf(field);
  const value = EVALUATOR.value(expression);
  if (!fits(value, type)) return fail(field, `${field.name} needs ${wanted(type)}, found ${kindOf(value)}`);
  return typeof value === 'bigint' ? BigInt.asUintN(bits, value) : value;
}

function flagOf(field: Field): bigint {
  if (ruleOf(field).bits !== 1) fail(field, `${field.name} needs a value`);
  return field.negated ? 0n : 1n;
}

function conditionOf(field: Field): Condition {
  const { read, type } = ruleOf(field);
  const { value } = field;
  const test = (isMet: (found: Value) => boolean): Condition => {
    return (frame) => {
      const found = read(frame);
      return found !== undefined && isMet(found);
    };
  };
  if (value.kind === 'bind') return fail(field, 'a rule of faults has no variables');
  if (value.kind === 'range') {
    if (type !== undefined) fail(field, `${field.name} has no range`);
    const [low, high] = [valueFor(field, value.low) as bigint, valueFor(field, value.high) as bigint];
    return test((found) => (found as bigint) >= low && (found as bigint) <= high);
  }
  const wish = value.kind === 'flag' ? flagOf(field) : valueFor(field, value.value);
  return test((found) => isEqual(found, wish) === (value.kind !== 'not'));
}

function rewriteOf(field: Field): Rewrite {
  const { value, name } = field;
  if (value.kind !== 'is' && value.kind !== 'flag') return fail(field, `rewrite needs one value: ${name}=value`);
  const wish = value.kind === 'flag' ? flagOf(field) : valueFor(field, value.value);
  if (name === 'icrcok')
    return (draft) => {
      draft.breaksIcrc = wish === 0n;
    };
  const { write } = ruleOf(field);
  return (draft) => void write(draft, wish as never);
}
