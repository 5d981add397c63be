/** Rules of faults of a device, which come and go while it is open. */
import { checkOptions, integer, text } from '../../base/options.js';
import type { Engine } from '../../device/engine.js';
import { VerbsError } from '../../errors.js';
import { MAX_FAULT_RULES } from '../../link/fault/options.js';
import type { HostFault } from '../../probe/faults/hostfault.js';
import type { FaultOrder } from '../../probe/faults/rules.js';
import { isCutOff } from './hostfaults.js';

/** Lets frames pass by rules of faults. */
type FaultEngine = Pick<Engine, 'setFaults'>;

/** Options of `device.addFault`. */
export interface FaultRuleOptions {
  /** Seed of a rule that hits packets by chance, such as `drop 1 % of ACK`: an integer. Default: 1. */
  readonly seed?: number;
}

/** Rules of packets that let none pass. */
const CUT_OFF: readonly FaultOrder[] = ['sent', 'received'].map((direction, i) => ({
  id: -1 - i,
  rule: `drop every * ${direction}, always`,
  seed: 0,
  slot: MAX_FAULT_RULES,
}));
const CHECKS = { seed: integer(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER) };

/** A rule of faults of a device, from `device.addFault`. */
export class DeviceFault {
  readonly #counts: Float64Array;
  readonly #end: () => Promise<void>;
  #lastHits: number | undefined;

  /** @internal @param counts the numbers of hits, by slot */
  constructor(
    /** Number of the rule among all that the device has had: 1 for the first. */
    readonly id: number,
    /** The text of the rule. */
    readonly rule: string,
    /** Seed of a rule by chance. */
    readonly seed: number,
    /** @internal */
    readonly slot: number,
    /** @internal The event of the host that it pretends. */
    readonly hostFault: HostFault | undefined,
    counts: Float64Array,
    end: () => Promise<void>,
  ) {
    this.#counts = counts;
    this.#end = end;
    counts[slot] = 0;
  }

  /** Number of packets that the rule has hit. 0 for events of the host. */
  get hits(): number {
    return this.#lastHits ?? (this.#counts[this.slot] as number);
  }

  /** Ends the rule. Packets that it holds back go on in their time. A second call does nothing. */
  async remove(): Promise<void> {
    if (this.#lastHits !== undefined) return;
    this.#lastHits = this.hits;
    await this.#end();
  }
}

/** A rule of faults without mistakes. */
interface CheckedRule {
  readonly rule: string;
  readonly seed: number;
  /** The event of the host that it pretends; undefined: it is for packets. */
  readonly hostFault: HostFault | undefined;
}

/**
 * Loads what rules of faults need, and checks them.
 * @param seed of the first rule; that of the second is one more, and so on
 * @throws TypeError; ScriptError
 */
export async function checkFaultRules(rules: readonly string[], seed = 1): Promise<CheckedRule[]> {
  const [{ checkFaultRule }, { parseHostFault }] = await Promise.all([
    import('../../probe/faults/matcher.js'),
    import('../../probe/faults/hostfault.js'),
    import('../../probe/faults/gate.js'),
  ]);
  return rules.map((rule, i) => {
    checkFaultRule(rule);
    return { rule, seed: seed + i, hostFault: parseHostFault(rule) };
  });
}

/** See the head of this file. */
export class Faults {
  /** Called with the events of the host that are in force when they have changed. */
  onHostFaults: (faults: readonly HostFault[]) => void = () => {};
  readonly #engine: FaultEngine;
  readonly #faults = new Set<DeviceFault>();
  /** Numbers of hits by slot. Created with the first rule: a page has no shared memory. */
  #counts!: Float64Array<SharedArrayBuffer>;
  #lastId = 0;
  /** Changes are made one after the other. */
  #last: Promise<void> = Promise.resolve();

  constructor(engine: FaultEngine) {
    this.#engine = engine;
  }

  /** The rules that are in force, in their order. */
  get all(): readonly DeviceFault[] {
    return [...this.#faults];
  }

  /** The events of the host that are in force. */
  get ofHost(): readonly HostFault[] {
    return this.all.flatMap(({ hostFault }) => hostFault ?? []);
  }

  /** @throws TypeError, RangeError; ScriptError; VerbsError ENOSPC */
  async add(rule: string, options: FaultRuleOptions = {}): Promise<DeviceFault> {
    text('rule', rule);
    const { seed = 1 } = checkOptions('device.addFault', options, CHECKS);
    const [fault] = await this.addAll(await checkFaultRules([rule], seed));
    return fault as DeviceFault;
  }

  /** Adds rules, which come into force together. @throws RangeError; VerbsError ENOSPC */
  async addAll(rules: readonly CheckedRule[]): Promise<DeviceFault[]> {
    this.#counts ??= new Float64Array(new SharedArrayBuffer((MAX_FAULT_RULES + 1) * Float64Array.BYTES_PER_ELEMENT));
    const faults: DeviceFault[] = [];
    try {
      for (const rule of rules) faults.push(this.#add(rule));
      await this.#apply();
    } catch (error) {
      for (const fault of faults) this.#faults.delete(fault);
      throw error;
    }
    return faults;
  }

  /** @throws VerbsError ENOSPC */
  #add({ rule, seed, hostFault }: CheckedRule): DeviceFault {
    const taken = new Set(this.all.map(({ slot }) => slot));
    const slot = Array.from({ length: MAX_FAULT_RULES }, (_, i) => i).find((i) => !taken.has(i));
    if (slot === undefined)
      throw new VerbsError('ENOSPC', `the device has ${MAX_FAULT_RULES} rules of faults, the most: remove one of them`);
    const end = () => {
      this.#faults.delete(fault);
      return this.#apply();
    };
    const fault: DeviceFault = new DeviceFault(++this.#lastId, rule, seed, slot, hostFault, this.#counts, end);
    this.#faults.add(fault);
    return fault;
  }

  #apply(): Promise<void> {
    const applied = this.#last.then(async () => {
      const { ofHost } = this;
      const ofPackets = this.all.filter(({ hostFault }) => hostFault === undefined);
      const orders = ofPackets.map(({ id, rule, seed, slot }) => ({ id, rule, seed, slot }));
      await this.#engine.setFaults([...orders, ...(isCutOff(ofHost) ? CUT_OFF : [])], this.#counts.buffer);
      this.onHostFaults(ofHost);
    });
    this.#last = applied.catch(() => {});
    return applied;
  }
}
