/**
 * Runs a script against a peer. A script names every packet that the peer sends while the script waits for one: a
 * packet that differs from the expected one, and that no `ignore` line matches, is a failure.
 */
import { decode } from '../packet/decode.js';
import { describe } from '../packet/describe.js';
import { encode } from '../packet/encode.js';
import type { Decoded } from '../packet/frame.js';
import type { Expression, Line, PacketSpec, Script, SourcePosition, Statement } from './ast.js';
import { ScriptError } from './error.js';
import type { Draft } from './fields.js';
import { formatExpression, formatPacket } from './format.js';
import { bindings, buildFrames, mismatch, psnsOf, record } from './packets.js';
import type { Arrival, PacketPort } from './port.js';
import { CONSTANTS, Duration, Evaluator, GIVEN, type Value } from './values.js';

/** A packet of a script's run. */
export interface TranscriptEntry {
  /** Nanoseconds since the start of the script. */
  readonly at: number;
  /** `out`: sent by the script. */
  readonly direction: 'out' | 'in';
  /** The Ethernet frame. */
  readonly frame: Uint8Array;
  /** Line of the script that sent or took the packet. Absent for a packet that no line has taken. */
  readonly line?: number;
}

/** The result of a script. */
export interface ScriptResult {
  /** `not applicable` if the peer does not offer what the script needs. */
  readonly outcome: 'pass' | 'fail' | 'not applicable';
  /** The script's `title`. */
  readonly title?: string;
  /** The script's `clause`. */
  readonly clause?: string;
  /** The line that failed, and why; or what the peer does not offer. */
  readonly failure?: SourcePosition & { readonly text: string };
  /** Durations in nanoseconds by name, in the order of their measurement. */
  readonly measurements: ReadonlyMap<string, readonly number[]>;
  /** All packets, at most 100,000. */
  readonly transcript: readonly TranscriptEntry[];
}

/** Options of a run. */
export interface RunOptions {
  /** The port of the packets. */
  readonly port: PacketPort;
  /** Variables that the script finds: `psn`, `msn`, `va`, `rkey`, `qp`, and others. Default: 0. */
  readonly variables?: Readonly<Record<string, bigint>>;
  /** The offers of the peer (`needs` lines). Default: everything. */
  readonly offers?: ReadonlySet<string>;
  /** Nanoseconds that a `<` line waits without `within`. Default: one second. */
  readonly patience?: number;
  /** Ends the run: `runScript` throws its reason. */
  readonly signal?: AbortSignal;
}

const PATIENCE = 1e9;
/** The most packets that a script keeps and reports. */
const MAX_TRANSCRIPT = 100_000;
/** The most repetitions of a block. */
const MAX_REPEAT = 1_000_000n;

/** Ends a run: the peer did not do what the script expects. */
class Failure extends Error {
  constructor(
    readonly place: SourcePosition,
    text: string,
  ) {
    super(text);
  }
}

/** Ends a run: the peer does not offer what the script needs. */
class NotApplicable extends Failure {}

/**
 * Runs a script.
 * @throws ScriptError for a mistake in the script: an unknown name, a value of the wrong kind
 */
export async function runScript(script: Script, options: RunOptions): Promise<ScriptResult> {
  return await new Run(script, options).run();
}

class Run {
  readonly #variables: Map<string, Value>;
  readonly #evaluator: Evaluator;
  readonly #transcript: TranscriptEntry[] = [];
  readonly #measurements = new Map<string, number[]>();
  readonly #ignored: PacketSpec[] = [];
  /** Packets that have arrived and that no line has taken. */
  #inbox: { arrival: Arrival; frame: Decoded; entry: number }[] = [];
  readonly #start: number;
  /** Time of the last statement. */
  #previous: number;
  #title: string | undefined;
  #clause: string | undefined;

  constructor(
    readonly script: Script,
    readonly options: RunOptions,
  ) {
    const { port, variables } = options;
    this.#variables = new Map<string, Value>(GIVEN.map((name) => [name, 0n]));
    this.#variables.set('mtu', BigInt(port.mtu)).set('qp', BigInt(port.flow.srcQp));
    for (const [name, value] of Object.entries(variables ?? {})) this.#variables.set(name, value);
    this.#evaluator = new Evaluator(this.#variables, (place, text) => {
      throw new ScriptError(script.name, place, text);
    });
    this.#start = port.now();
    this.#previous = this.#start;
  }

  async run(): Promise<ScriptResult> {
    let failure: Failure | undefined;
    try {
      await this.#lines(this.script.lines);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      failure = error;
    }
    const outcome = failure === undefined ? 'pass' : failure instanceof NotApplicable ? 'not applicable' : 'fail';
    return {
      outcome,
      ...(this.#title === undefined ? {} : { title: this.#title }),
      ...(this.#clause === undefined ? {} : { clause: this.#clause }),
      ...(failure === undefined ? {} : { failure: { ...placeOf(failure.place), text: failure.message } }),
      measurements: this.#measurements,
      transcript: this.#transcript,
    };
  }

  async #lines(lines: readonly Line[]): Promise<void> {
    for (const { time, statement } of lines) {
      if (statement === undefined) continue;
      this.options.signal?.throwIfAborted();
      if (time !== undefined) {
        const from = time.from === 'start' ? this.#start : this.#previous;
        await this.#until(from + this.#evaluator.nanoseconds(time.duration));
      }
      await this.#statement(statement);
    }
  }

  async #statement(statement: Statement): Promise<void> {
    switch (statement.kind) {
      case 'title':
        this.#title = statement.text;
        return;
      case 'clause':
        this.#clause = statement.text;
        return;
      case 'needs': {
        const { offers } = this.options;
        const missing = statement.what.filter((what) => offers !== undefined && !offers.has(what));
        if (missing.length > 0) throw new NotApplicable(statement, `the peer does not offer ${missing.join(', ')}`);
        return;
      }
      case 'let':
        this.#declare(statement, statement.name, this.#evaluator.value(statement.value));
        return;
      case 'set':
        if (!this.#variables.has(statement.name)) this.#evaluator.fail(statement, `no variable ${statement.name}`);
        this.#variables.set(statement.name, this.#evaluator.value(statement.value));
        return;
      case 'send':
        return this.#send(statement);
      case 'expect':
        return await this.#expect(statement);
      case 'none':
        return await this.#none(statement);
      case 'ignore':
        this.#ignored.push(...statement.packets);
        return;
      case 'wait':
        return await this.#until(this.options.port.now() + this.#evaluator.nanoseconds(statement.duration));
      case 'repeat':
        return await this.#repeat(statement);
      case 'check':
        return this.#check(statement);
      case 'measure':
        return this.#measure(statement);
    }
  }

  #declare(place: SourcePosition, name: string, value: Value): void {
    if (CONSTANTS.has(name)) this.#evaluator.fail(place, `${name} is a constant`);
    if (this.#variables.has(name)) this.#evaluator.fail(place, `the variable ${name} exists already; set changes it`);
    this.#variables.set(name, value);
  }

  #send({ packet, as }: Statement & { kind: 'send' }): void {
    const { port } = this.options;
    const drafts = buildFrames(packet, this.#evaluator, port);
    for (const draft of drafts) {
      const bytes = encodeDraft(draft);
      const at = port.send(bytes) - this.#start;
      this.#previous = at + this.#start;
      this.#note({ at, direction: 'out', frame: bytes, line: packet.line });
      // The last packet of a message has the name.
      if (as !== undefined) this.#variables.set(as, record(decode(encode(draft)), durationOf(at)));
    }
    if (packet.fields.some(({ name }) => name === 'psn')) return;
    const psn = this.#variables.get('psn');
    const used = drafts.reduce((sum, draft) => sum + psnsOf(draft, port.mtu), 0);
    if (typeof psn === 'bigint') this.#variables.set('psn', BigInt.asUintN(24, psn + BigInt(used)));
  }

  async #expect(statement: Statement & { kind: 'expect' }): Promise<void> {
    const { patience = PATIENCE } = this.options;
    const time = (expression: Expression | undefined, otherwise: number) =>
      expression === undefined ? otherwise : this.#evaluator.nanoseconds(expression);
    const [earliest, latest] = [time(statement.after, 0), time(statement.within, patience)];
    const since = this.#previous;
    const next = await this.#next(since + latest);
    const wanted = statement.packets.map(formatPacket).join(' or ');
    const limit = statement.within === undefined ? new Duration(BigInt(patience)) : formatExpression(statement.within);
    if (next === undefined) throw new Failure(statement, `expected ${wanted} within ${limit}, nothing arrived`);
    const { arrival, frame, entry } = next;
    const reasons = statement.packets.map((packet) => mismatch(frame, packet, this.#evaluator));
    const match = reasons.indexOf(undefined);
    if (match < 0)
      throw new Failure(statement, `expected ${wanted}, received ${describe(arrival.frame)}: ${reasons.join('; ')}`);
    const took = arrival.at - since;
    if (earliest > 0 && took < earliest)
      throw new Failure(statement, `${wanted} arrived ${durationOf(earliest - took)} too early`);
    if (took > latest) throw new Failure(statement, `${wanted} arrived ${durationOf(took - latest)} too late`);
    this.#previous = arrival.at;
    const taken = this.#transcript[entry];
    if (taken !== undefined) this.#transcript[entry] = { ...taken, line: statement.line };
    const packet = statement.packets[match] as PacketSpec;
    for (const [name, value] of bindings(frame, packet, this.#evaluator)) this.#variables.set(name, value);
    if (statement.as !== undefined) this.#variables.set(statement.as, record(frame, this.#sinceStart(arrival.at)));
  }

  async #none({ packets, duration, ...place }: Statement & { kind: 'none' }): Promise<void> {
    const now = this.options.port.now();
    await this.#until(now + this.#evaluator.nanoseconds(duration));
    for (const { arrival, frame } of this.#inbox) {
      if (arrival.at < now) continue;
      const found = packets.find((packet) => mismatch(frame, packet, this.#evaluator) === undefined);
      if (found !== undefined)
        throw new Failure(place, `expected no ${formatPacket(found)}, received ${describe(arrival.frame)}`);
    }
  }

  async #repeat({ count, as, body, ...place }: Statement & { kind: 'repeat' }): Promise<void> {
    const times = this.#evaluator.number(count);
    if (times < 0n || times > MAX_REPEAT) this.#evaluator.fail(count, `the count ${times} must be 0 to ${MAX_REPEAT}`);
    const outside = new Set(this.#variables.keys());
    if (as !== undefined && outside.has(as)) this.#declare(place, as, 0n);
    for (let i = 0n; i < times; i++) {
      if (as !== undefined) this.#variables.set(as, i);
      await this.#lines(body);
      // names of the block end with it
      for (const name of this.#variables.keys()) if (!outside.has(name)) this.#variables.delete(name);
    }
  }

  #check({ condition, text, ...place }: Statement & { kind: 'check' }): void {
    if (this.#evaluator.number(condition) !== 0n) return;
    const rule = formatExpression(condition);
    throw new Failure(place, text === undefined ? `${rule} does not hold` : `${text}: ${rule} does not hold`);
  }

  #measure({ from, to, as, ...place }: Statement & { kind: 'measure' }): void {
    const [start, end] = [from, to].map((name) => {
      const value = this.#evaluator.value({ ...place, kind: 'name', path: [name, 'time'] });
      return Number((value as Duration).ns);
    }) as [number, number];
    const found = this.#measurements.get(as) ?? [];
    found.push(end - start);
    this.#measurements.set(as, found);
  }

  /** Returns the next packet that no `ignore` line matches, or undefined when there is none until a time. */
  async #next(until: number) {
    for (;;) {
      const first = this.#inbox.shift();
      if (first !== undefined) return first;
      const arrival = await this.options.port.receive(until);
      this.options.signal?.throwIfAborted();
      if (arrival === undefined) return undefined;
      this.#take(arrival);
    }
  }

  async #until(time: number): Promise<void> {
    for (;;) {
      const arrival = await this.options.port.receive(time);
      this.options.signal?.throwIfAborted();
      if (arrival === undefined) break;
      this.#take(arrival);
    }
    this.#previous = Math.max(this.#previous, time);
  }

  #take(arrival: Arrival): void {
    const entry = this.#transcript.length;
    this.#note({ at: arrival.at - this.#start, direction: 'in', frame: arrival.frame });
    let frame: Decoded;
    try {
      frame = decode(arrival.frame);
    } catch {
      return; // no RoCEv2 packet; the transcript has it
    }
    if (this.#ignored.some((packet) => mismatch(frame, packet, this.#evaluator) === undefined)) return;
    this.#inbox.push({ arrival, frame, entry });
  }

  #note(entry: TranscriptEntry): void {
    if (this.#transcript.length < MAX_TRANSCRIPT) this.#transcript.push(entry);
  }

  #sinceStart(at: number): Duration {
    return durationOf(at - this.#start);
  }
}

const durationOf = (ns: number): Duration => new Duration(BigInt(Math.round(ns)));
const placeOf = ({ line, column }: SourcePosition): SourcePosition => ({ line, column });

/** Returns the bytes of a frame, with a wrong ICRC if the draft asks for it. */
function encodeDraft(draft: Draft): Uint8Array {
  const bytes = encode(draft);
  if (draft.breaksIcrc) {
    const last = bytes.length - 1 - (draft.trailer?.length ?? 0);
    bytes[last] = (bytes[last] as number) ^ 0xff;
  }
  return bytes;
}
