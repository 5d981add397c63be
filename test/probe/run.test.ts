// Scripts of packets against our own card, in virtual time.
import { expect, test } from 'vitest';
import { runText } from './virtualport.js';

const passes = async (text: string, options = {}) => {
  const result = await runText(text, options);
  expect(result.failure?.text).toBeUndefined();
  expect(result.outcome).toBe('pass');
  return result;
};
const failure = async (text: string, options = {}) => {
  const result = await runText(text, options);
  expect(result.outcome).toBe('fail');
  return `${result.failure?.line}:${result.failure?.column}: ${result.failure?.text}`;
};

test('a SEND is acknowledged', async () => {
  const { peer, transcript } = await passes(`
    title "A SEND is acknowledged"
    let first = psn
    > SEND_ONLY ackreq payload=pattern(64) as sent
    < ACK psn=first msn=1 icrcok within 1ms as good
    check good.psn == sent.psn
    check length(sent.payload) == 64 "the payload"
    check psn == first + 1
  `);
  expect(peer.qp.poll()).toMatchObject([{ status: 'SUCCESS', byteLen: 64 }]);
  expect(transcript.map(({ direction, line }) => [direction, line])).toEqual([
    ['out', 4],
    ['in', 5],
  ]);
});

test('a gap in the PSNs is answered by one NAK, and measured', async () => {
  const { measurements } = await passes(`
    let first = psn
    set psn = psn + 1
    > SEND_ONLY ackreq as late
    < NAK psn=first code=sequence within 10ms as refusal
    > SEND_ONLY psn=first+2 ackreq
    none < NAK for 20ms
    measure late to refusal as nak_generation
  `);
  expect(measurements.get('nak_generation')).toEqual([0]);
});

test('messages become packets by the path MTU', async () => {
  const { peer } = await passes(`
    let first = psn
    > WRITE payload=pattern(2500, 9) ackreq
    < ACK psn=first+2 msn=1 within 1ms
    > READ_REQUEST length=2500
    < READ_RESPONSE_FIRST payload=pattern(1024, 9) psn=>one within 1ms as answer
    < READ_RESPONSE_MIDDLE psn=one+1
    < READ_RESPONSE_LAST psn=one+2 msn=2
    check psn == first + 6
  `);
  expect(Buffer.from(peer.target.bytes.subarray(0, 3)).toString('hex')).toBe('09a037');
});

test('repeat, ranges, alternatives, bindings', async () => {
  await passes(`
    repeat 3 as i {
      > SEND_ONLY ackreq
      < NAK or ACK credits=0..31 msn=>m within 1ms
      check m == i + 1
    }
  `);
});

test('what the peer does not offer makes a script not applicable', async () => {
  const result = await runText('needs send flush\n> SEND_ONLY', { offers: new Set(['send']) });
  expect([result.outcome, result.failure?.text]).toEqual(['not applicable', 'the peer does not offer flush']);
  expect(result.transcript).toEqual([]);
});

test('a packet that differs is named with the difference', async () => {
  expect(await failure('> SEND_ONLY ackreq\n< ACK msn=7 within 1ms')).toMatch(
    /^2:1: expected ACK msn=7, received .*ACKNOWLEDGE.*: msn is 1, not 7$/,
  );
  expect(await failure('> SEND_ONLY ackreq\n< READ_RESPONSE_ONLY within 1ms')).toMatch(/it is ACK$/);
});

test('silence and unwanted packets are failures', async () => {
  expect(await failure('> SEND_ONLY icrcok=0 ackreq\n< ACK within 1ms')).toBe(
    '2:1: expected ACK within 1ms, nothing arrived',
  );
  expect(await failure('> SEND_ONLY ackreq\nnone < ACK for 1ms')).toMatch(/^2:1: expected no ACK, received/);
  expect(await failure('check 1 == 2 "sums"')).toBe('1:1: sums: 1 == 2 does not hold');
});

test('times: before a line, since the start, not before', async () => {
  const { transcript } = await passes(`
    > SEND_ONLY
    +10us > SEND_ONLY
    @1ms > SEND_ONLY ackreq
    ignore < ACK
    wait 5ms
    > SEND_ONLY
  `);
  expect(transcript.filter(({ direction }) => direction === 'out').map(({ at }) => at)).toEqual([
    0, 10_000, 1_000_000, 6_000_000,
  ]);
  expect(await failure('> SEND_ONLY ackreq\n< ACK after 1ms within 2ms')).toBe('2:1: ACK arrived 1ms too early');
});

test.each([
  ['> SEND_ONLY colour=1', /^test.roce:1:13: no field colour; fields are eth.src/],
  ['> SENDS', /^test.roce:1:3: no operation SENDS; operations are/],
  ['> SEND_ONLY psn=foo', /^test.roce:1:17: no variable foo$/],
  ['> SEND_ONLY msn=1', /^test.roce:1:13: this packet has no field msn$/],
  ['> SEND_ONLY psn=1us', /^test.roce:1:13: psn needs a number, found a duration$/],
  ['> ACK msn=1', /^test.roce:1:3: ACK needs the field psn$/],
  ['> SEND_ONLY payload=3', /^test.roce:1:13: payload needs bytes, found a number$/],
  ['< ACK within 3', /^test.roce:1:14: expected a duration, found a number$/],
  ['let psn = 1', /^test.roce:1:1: the variable psn exists already; set changes it$/],
  ['set x = 1', /^test.roce:1:1: no variable x$/],
  ['let x = 1/0', /^test.roce:1:9: division by zero$/],
  ['let x = bytes("abc")', /^test.roce:1:15: bytes needs hexadecimal digits/],
  ['let x = pattern(99999999999)', /^test.roce:1:17: the length 99999999999 must be 0 to 16777216 bytes$/],
  ['repeat 9999999999 {\n}', /^test.roce:1:8: the count/],
  ['check psn.msn', /^test.roce:1:7: psn is a number, only a packet has fields$/],
])('%s is refused', async (text, message) => {
  await expect(runText(text)).rejects.toThrow(message);
});
