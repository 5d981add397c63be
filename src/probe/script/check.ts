/** Finds mistakes in a script without running it: unknown operations, fields, functions and variables. */
import type { Expression, Field, Line, PacketSpec, Script, SourcePosition, Statement } from './ast.js';
import { ScriptError } from './error.js';
import { FIELDS } from './fields.js';
import { isMessage, OPERATIONS, unknownField, unknownOperation } from './packets.js';
import { CONSTANTS, FUNCTIONS, GIVEN, unknownFunction } from './values.js';

/** The kind of a name: a packet has fields. */
type Meaning = 'packet' | 'value';

/**
 * Returns the mistakes in a script, in the order of its lines. What depends on values, such as the type of a field's
 * value, shows only when the script runs.
 */
export function checkScript(script: Script): ScriptError[] {
  const checker = new Checker(script.name);
  checker.lines(script.lines);
  return checker.mistakes;
}

class Checker {
  readonly mistakes: ScriptError[] = [];
  #names = new Map<string, Meaning>(GIVEN.map((name) => [name, 'value']));

  constructor(readonly script: string) {}

  lines(lines: readonly Line[]): void {
    for (const { time, statement } of lines) {
      if (time) this.#expression(time.duration);
      if (statement) this.#statement(statement);
    }
  }

  #statement(statement: Statement): void {
    switch (statement.kind) {
      case 'let':
        this.#expression(statement.value);
        if (CONSTANTS.has(statement.name)) this.#mistake(statement, `${statement.name} is a constant`);
        else if (this.#names.has(statement.name))
          this.#mistake(statement, `the variable ${statement.name} exists already; set changes it`);
        this.#names.set(statement.name, 'value');
        return;
      case 'set':
        this.#expression(statement.value);
        this.#known(statement, statement.name);
        return;
      case 'send':
        this.#packet(statement.packet, 'sent');
        this.#define(statement.as, 'packet');
        return;
      case 'expect':
        for (const packet of statement.packets) this.#packet(packet, 'received');
        for (const limit of [statement.after, statement.within]) if (limit) this.#expression(limit);
        this.#define(statement.as, 'packet');
        return;
      case 'none':
      case 'ignore':
        for (const packet of statement.packets) this.#packet(packet, 'received');
        if (statement.kind === 'none') this.#expression(statement.duration);
        return;
      case 'wait':
        this.#expression(statement.duration);
        return;
      case 'repeat':
        this.#repeat(statement);
        return;
      case 'check':
        this.#expression(statement.condition);
        return;
      case 'measure':
        for (const name of [statement.from, statement.to])
          if (this.#known(statement, name) === 'value')
            this.#mistake(statement, `${name} is not the name of a packet, only packets have times`);
        return;
    }
  }

  /** Names of a block end with it. */
  #repeat({ count, as, body }: Statement & { kind: 'repeat' }): void {
    this.#expression(count);
    const outside = this.#names;
    this.#names = new Map(outside);
    this.#define(as, 'value');
    this.lines(body);
    this.#names = outside;
  }

  #packet(packet: PacketSpec, direction: 'sent' | 'received'): void {
    const { operation, fields } = packet;
    const isKnown = direction === 'sent' ? isMessage(operation) : operation === '*';
    if (!isKnown && operation !== 'RAW' && !OPERATIONS.has(operation))
      this.#mistake(packet, unknownOperation(operation));
    for (const field of fields) this.#field(field, direction);
  }

  #field(field: Field, direction: 'sent' | 'received'): void {
    const { name, value } = field;
    const rule = FIELDS.get(name);
    if (rule === undefined) {
      this.#mistake(field, unknownField(name));
      return;
    }
    if (direction === 'sent' && value.kind !== 'is' && value.kind !== 'flag')
      this.#mistake(field, `a packet that is sent needs one value: ${name}=value`);
    if (value.kind === 'flag' && rule.bits !== 1) this.#mistake(field, `${name} needs a value`);
    if (value.kind === 'range' && rule.type !== undefined) this.#mistake(field, `${name} has no range`);
    if (value.kind === 'is' || value.kind === 'not') this.#expression(value.value);
    if (value.kind === 'range') for (const end of [value.low, value.high]) this.#expression(end);
    if (value.kind === 'bind') this.#define(value.name, 'value');
  }

  #expression(expression: Expression): void {
    switch (expression.kind) {
      case 'group':
        this.#expression(expression.inner);
        return;
      case 'unary':
        this.#expression(expression.operand);
        return;
      case 'binary':
        this.#expression(expression.left);
        this.#expression(expression.right);
        return;
      case 'call':
        if (!FUNCTIONS.has(expression.name)) this.#mistake(expression, unknownFunction(expression.name));
        for (const argument of expression.arguments) this.#expression(argument);
        return;
      case 'name':
        this.#path(expression, expression.path);
        return;
    }
  }

  #path(place: SourcePosition, [first = '', ...field]: readonly string[]): void {
    const meaning = CONSTANTS.has(first) ? 'value' : this.#known(place, first);
    const name = field.join('.');
    if (name === '' || meaning === undefined) return;
    if (meaning === 'value') this.#mistake(place, `${first} is not a packet, only a packet has fields`);
    else if (name !== 'time' && !FIELDS.has(name)) this.#mistake(place, unknownField(name));
  }

  /** Returns the meaning of a name, or notes the mistake. */
  #known(place: SourcePosition, name: string): Meaning | undefined {
    const meaning = this.#names.get(name);
    if (meaning === undefined) this.#mistake(place, `no variable ${name}`);
    return meaning;
  }

  #define(name: string | undefined, meaning: Meaning): void {
    if (name !== undefined) this.#names.set(name, meaning);
  }

  #mistake(place: SourcePosition, text: string): void {
    this.mistakes.push(new ScriptError(this.script, place, text));
  }
}
