/** Parses a script. */
import { SyntaxError as GrammarError, parse } from '../../../build/scriptgrammar.js';
import { type FaultRule, type Line, OPERATORS, type Script } from './ast.js';
import { ScriptError } from './error.js';

/** Tokens that an expression may start with; messages call them a value. */
const VALUE = ['"("', 'duration', 'name', 'number', 'string'];
const OPERATOR_TEXTS: readonly string[] = OPERATORS.flat();

/**
 * Returns the syntax tree of a script.
 * @param name name of the script in messages, usually its path
 * @throws ScriptError with line, column, what was expected and what was found
 */
export function parseScript(text: string, name = 'script'): Script {
  try {
    return { name, lines: parse(text.endsWith('\n') ? text.slice(0, -1) : text) as Line[] };
  } catch (error) {
    if (error instanceof GrammarError) throw new ScriptError(name, error.location.start, messageOf(error));
    throw error;
  }
}

/**
 * Returns the syntax tree of a rule of faults, as in `drop the 5th WRITE_MIDDLE of qp 1, 2nd time too`.
 * @throws ScriptError with the column, what was expected and what was found
 */
export function parseFaultRule(text: string): FaultRule {
  try {
    return parse(text, { startRule: 'FaultRule' }) as FaultRule;
  } catch (error) {
    if (error instanceof GrammarError) throw new ScriptError('fault', error.location.start, messageOf(error));
    throw error;
  }
}

/** Returns what the grammar expected and what it found, with words for the tokens that always come together. */
function messageOf({ expected, found, message }: GrammarError): string {
  if (expected === null) return message;
  const names = (expected ?? []).map((each) => {
    if (each.type === 'other') return each.description;
    if (each.type !== 'literal' || OPERATOR_TEXTS.includes(each.text)) return 'operator'; // a class of characters
    return each.text === '!' ? 'field' : `"${each.text}"`;
  });
  const isValue = VALUE.every((start) => names.includes(start));
  const kept = isValue ? ['value', ...names.filter((each) => each !== 'operator' && !VALUE.includes(each))] : names;
  const unique = [...new Set(kept)].filter((each, _, all) => each !== 'space' || all.length === 1);
  const last = unique.pop() ?? 'nothing';
  const list = unique.length === 0 ? last : `${unique.join(', ')} or ${last}`;
  return `expected ${list}, found ${typeof found === 'string' ? JSON.stringify(found) : 'end of input'}`;
}
