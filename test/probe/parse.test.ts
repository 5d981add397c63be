// The language of scripts: mistakes are named exactly, and the formatter changes nothing but the form.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { OPERATORS } from '../../src/probe/script/ast.js';
import { formatScript } from '../../src/probe/script/format.js';
import { parseScript } from '../../src/probe/script/parse.js';

test.each([
  ['> SEND_ONLY psn=', '1:17: expected value, found end of input'],
  ['> send', '1:3: expected operation, found "s"'],
  ['let x == 3', '1:8: expected value, found "="'],
  ['measure a b', '1:11: expected "to", found "b"'],
  ['\n\n> ACK psn=1..', '3:14: expected value, found end of input'],
  ['< ACK within 10mm', '1:14: expected value, found "1"'],
  ['repeat 3 {\n> ACK psn=1', '2:12: expected'],
  ['+5us', '1:5: expected'],
  ['let x = (1 + 2', '1:15: expected operator or ")", found end of input'],
  ['check "no end', '1:7: expected value, found "\\""'],
])('%j: %s', (text, message) => {
  expect(() => parseScript(text, 'a.roce')).toThrow(`a.roce:${message}`);
});

const FORMED = `title "A gap in the PSNs"  # IBTA
clause "IBTA 9.7.5.2.8"
needs responder send

# the sequence
let first = psn + 1
set psn = (psn + 2) & 0xff_ffff
> SEND_ONLY ackreq !solicited payload=pattern(64) ip.ttl=3 as sent
+10us > RAW opcode=0x1f
< ACK psn=first credits=1..30 msn=>m or NAK code!=1 after 1us within 1.5ms as good
repeat 8 as i {
  # inside
  none < NAK for 20ms
  @1s wait 10us
}  # end
ignore < CNP
check good.msn == m + 1 "counts"
measure sent to good as ack_generation
`;

test('a script in its one form stays as it is', () => {
  expect(formatScript(parseScript(FORMED))).toBe(FORMED);
});

test('spaces, empty lines and indentation are made alike', () => {
  const wild = FORMED.replace(/^(.*)$/gm, ' \t$1 ')
    .replace(' + 1\n', '+1\n')
    .replaceAll('\n', '\n\n\n');
  const formed = formatScript(parseScript(wild));
  expect(formed.replaceAll('\n\n', '\n')).toBe(FORMED.replaceAll('\n\n', '\n'));
  expect(formatScript(parseScript(formed))).toBe(formed);
});

const withoutPlaces = (tree: unknown) =>
  JSON.parse(JSON.stringify(tree, (key, value) => (key === 'line' || key === 'column' ? undefined : value)));

const name = fc.constantFrom('psn', 'first', 'x1', 'ack_time');
const expression = fc.letrec<{ expression: string }>((tie) => ({
  expression: fc.oneof(
    { maxDepth: 4 },
    name,
    fc.nat().map(String),
    fc.nat(255).map((n) => `0x${n.toString(16)}`),
    fc.tuple(fc.nat(999), fc.constantFrom('ns', 'us', 'ms', 's')).map(([n, unit]) => `${n}${unit}`),
    fc
      .tuple(tie('expression'), fc.constantFrom(...OPERATORS.flat()), tie('expression'))
      .map(([a, operator, b]) => `(${a}${operator} ${b})`),
    tie('expression').map((inner) => `-${inner}`),
    tie('expression').map((inner) => `pattern(${inner})`),
  ),
})).expression;

test('the formatted text has the same tree', () => {
  fc.assert(
    fc.property(expression, expression, (a, b) => {
      const text = `let x=${a}\ncheck ${b}\n`;
      const tree = parseScript(text);
      expect(withoutPlaces(parseScript(formatScript(tree)))).toEqual(withoutPlaces(tree));
    }),
  );
});
