// Mistakes in scripts that show before a script runs, and the documentation of the language.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkScript } from '../../src/probe/script/check.js';
import { FIELDS } from '../../src/probe/script/fields.js';
import { formatScript } from '../../src/probe/script/format.js';
import { MESSAGES } from '../../src/probe/script/packets.js';
import { parseScript } from '../../src/probe/script/parse.js';
import { CONSTANTS, FUNCTIONS, GIVEN } from '../../src/probe/script/values.js';

const mistakes = (text: string) => checkScript(parseScript(text, 'a.roce')).map(({ message }) => message);
const GUIDE = readFileSync(join(import.meta.dirname, '../../docs/scripts.md'), 'utf8');
const EXAMPLE = /(title "A gap[\s\S]*?)```/.exec(GUIDE)?.[1] as string;

test.each([
  ['> SENDS', ['1:3: no operation SENDS']],
  ['> *', ['1:3: no operation *']],
  ['< SEND_ONLY colour=1', ['1:13: no field colour']],
  ['> SEND_ONLY psn=1..2', ['1:13: a packet that is sent needs one value: psn=value']],
  ['< ACK psn', ['1:7: psn needs a value']],
  ['< SEND_ONLY payload=1..2', ['1:13: payload has no range']],
  ['let psn = 1', ['1:1: the variable psn exists already']],
  ['let ce = 1', ['1:1: ce is a constant']],
  ['set x = 1', ['1:1: no variable x']],
  ['check a + b', ['1:7: no variable a', '1:11: no variable b']],
  ['let a = 1\ncheck a.psn', ['2:7: a is not a packet, only a packet has fields']],
  ['> SEND_ONLY as a\ncheck a.colour', ['2:7: no field colour']],
  ['check lengths(1)', ['1:7: no function lengths']],
  ['repeat 2 as i {\n  let a = i\n}\ncheck i + a', ['4:7: no variable i', '4:11: no variable a']],
  ['let a = 1\n> SEND_ONLY as b\nmeasure a to b as c', ['3:1: a is not the name of a packet']],
  ['+x wait y', ['1:2: no variable x', '1:9: no variable y']],
  ['< ACK psn=>p after q within -(r)', ['1:20: no variable q', '1:31: no variable r']],
])('%j: %s', (text, expected) => {
  const found = mistakes(text);
  expect(found).toHaveLength(expected.length);
  for (const [i, message] of expected.entries()) expect(found[i]).toContain(`a.roce:${message}`);
});

test('the guide’s example has no mistake and the one form, and every name of the language is explained', () => {
  expect(mistakes(EXAMPLE)).toEqual([]);
  expect(formatScript(parseScript(EXAMPLE))).toBe(EXAMPLE);
  for (const name of [...FUNCTIONS.keys(), ...GIVEN, ...CONSTANTS.keys(), ...MESSAGES])
    expect(GUIDE).toMatch(`\`${name}`);
  for (const [name, { bits, type, about }] of FIELDS)
    expect(GUIDE).toContain(`| \`${name}\` | ${bits ?? type} | ${about} |`);
});
