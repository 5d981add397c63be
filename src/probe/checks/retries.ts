/** Checks of a peer that sends requests: what it does when they are lost, refused, or not answered. */

import { psnAfter, psnDistance } from '../packet/psn.js';
import type { RequesterCheck } from './check.js';
import { type Received, receivedText } from './conversation.js';
import { type Message, type Service, timeoutOf } from './service.js';

/** Kinds whose packets an ACK completes. */
const ACKNOWLEDGED = ['WRITE', 'SEND'] as const;
/** Below this code adapters raise the ACK timeout to it. */
const FLOOR = 16;
/** The longest tick of Linux kernels, by which timers in ticks are too early: that of 100 Hz (ns). */
const TICK = 10e6;
/** A timer may be so much too early, by what clocks and links do (as a share of the timeout). */
const EARLY = 0.02;
/** Packets of one message that are more than a peer's timer sends: something floods. */
const FLOOD = 64;
/** Retries after which a peer is held to go on for ever. */
const FOR_EVER = 20;

/**
 * Withholds everything, and waits for the first packet of a message to come again.
 * @returns the times between its transmissions, in nanoseconds
 */
async function withhold(service: Service, message: Message, most: number): Promise<number[]> {
  const [first] = message;
  const times = [first.at];
  while (times.length <= most) {
    const packet = await service.again(first.bth.psn);
    if (packet === undefined) break;
    times.push(packet.at);
  }
  return times.slice(1).map((at, i) => at - (times[i] as number));
}

/**
 * Returns a time between transmissions that is too short for a timer; undefined if there is none. A busy host may read
 * a packet late, which shortens the time to the next one: one time that is short by less than half a timeout does not
 * count.
 */
function earlyOf(times: readonly number[], expected: number): number | undefined {
  const least = expected * (1 - EARLY);
  const short = times.filter((time) => time < least);
  return short.length > 1 ? short[0] : short.find((time) => time < expected / 2);
}

/** Returns whether each time is longer than the one before it, by a fifth or more, but for the last ones. */
function isGrowing(times: readonly number[]): boolean {
  const [first = 0, second = 0] = times;
  return second > 1.2 * first || Math.max(...times) > 1.2 * Math.max(first, second);
}

const nakReaction: RequesterCheck = {
  number: 23,
  name: 'nak-reaction',
  title: 'After a NAK the peer sends at once from the missing packet on, and nothing before it',
  clause: 'IBTA volume 1, chapter 9: requester, NAK of a PSN sequence error',
  sends: 'a NAK 0x60 of the second packet of a message of four, five times',
  expects: 'the second packet first, and those behind it in order; the times are reported as nak_reaction',
  known: { timer: { of: 'some software adapters', what: 'the NAK is not heeded, the timer repairs the loss' } },
  asks: { anyOf: ACKNOWLEDGED },
  async run(service) {
    const times: number[] = [];
    for (let round = 0; round < 5; round++) {
      service.ask(1, 4 * service.mtu);
      const message = await service.message();
      const [, missing] = message;
      if (missing === undefined) service.notApplicable('its messages have one packet');
      await service.rest();
      const at = service.refuse(missing.bth.psn);
      let next = missing.bth.psn;
      while (psnDistance(next, service.expected) < 0) {
        const packet = await service.answer('a NAK', service.patience);
        const isLate = packet.at - at >= service.timeout / 2;
        const ahead = psnDistance(packet.bth.psn, next);
        // what was under way when the NAK came
        if (psnDistance(packet.bth.psn, service.expected) >= 0) continue;
        if (ahead > 0)
          service.fail(`after a NAK of PSN ${missing.bth.psn}: ${receivedText(packet)}, ${next} is missing`);
        if (ahead < 0 && packet.bth.psn === message[0].bth.psn && !isLate)
          service.fail(`after a NAK of PSN ${missing.bth.psn}: ${receivedText(packet)}, which had arrived`);
        if (ahead < 0) continue;
        if (next === missing.bth.psn) times.push(packet.at - at);
        next = (next + 1) & 0xffffff;
      }
      service.complete(message);
    }
    await service.goesOn('the repair');
    for (const time of times) service.measure('nak_reaction', time);
    const late = times.filter((time) => time >= service.timeout / 2);
    const said = `${late.length} of ${times.length} times the missing packet came after ${(late[0] ?? 0) / 1e6} ms or more`;
    if (late.length > 0) service.deviates('timer', said);
  },
};

const timeout: RequesterCheck = {
  number: 25,
  name: 'ack-timeout',
  title: 'A message whose ACK does not come is sent again after one to four ACK timeouts',
  clause: 'IBTA volume 1, chapter 9: transport timer of a requester',
  sends: 'no ACK of the first message until it came four times again',
  expects: 'the message again between T and 4 T; the times are reported as ack_timeout',
  known: {
    adaptive: { of: 'CX6, wasm-roce', what: 'retransmission is adaptive: the first times are shorter, and grow' },
    ticks: { of: 'rxe', what: 'the timer counts in ticks of the kernel, and is early by less than one' },
    floor: { of: 'mlx5', what: 'codes of the timeout below 16 act as 16, and the time is up to twice that' },
  },
  asks: { anyOf: ACKNOWLEDGED, timeout: 14 },
  async run(service) {
    const { timeout: code } = service.peer;
    const [message] = (await service.messages(1)) as [Message];
    const times = await withhold(service, message, 4);
    for (const time of times) service.measure('ack_timeout', time);
    service.complete(message);
    if (times.length === 0) return service.fail('a message without ACK is not sent again');
    if (code === undefined || code === 0) return service.notApplicable('the ACK timeout is not known');
    const expected = timeoutOf(code);
    const said = (time: number) => {
      const which = `transmission ${times.indexOf(time) + 2} of the message`;
      return `${which} came ${time / 1e6} ms after the one before it, the ACK timeout is ${expected / 1e6} ms`;
    };
    const early = earlyOf(times, expected);
    if (early !== undefined) {
      // the ACK timer may come amid the growing times of another one
      if (isGrowing(times)) service.deviates('adaptive', said(early));
      if (times.every((time) => time > expected - TICK)) service.deviates('ticks', said(early));
      service.fail(said(early));
    }
    const late = times.find((time) => time > 4 * expected);
    if (late === undefined) return;
    const isFloor = times.every((time) => time >= timeoutOf(FLOOR) && time <= 2.1 * timeoutOf(FLOOR));
    if (code < FLOOR && isFloor) service.deviates('floor', said(late));
    service.fail(said(late));
  },
};

const retries: RequesterCheck = {
  number: 27,
  name: 'retry-count',
  title: 'A message that is never acknowledged is sent again as often as the retry count says, and then no more',
  clause: 'IBTA volume 1, chapter 9: retry counter of a requester',
  sends: 'no ACK',
  expects: 'the number of retransmissions; it is reported as retries, their times as retry_interval',
  known: {
    forever: { of: 'rxe', what: 'a retry count of 7 has no end' },
    more: {
      of: 'CX6, wasm-roce',
      what: 'more retransmissions than the retry count says, as adaptive ones do not count',
    },
  },
  counts: ['retries'],
  asks: { anyOf: ACKNOWLEDGED, timeout: 14, retryCnt: 7 },
  isIntrusive: true,
  async run(service) {
    const [message] = (await service.messages(1)) as [Message];
    const times = await withhold(service, message, FOR_EVER);
    for (const time of times) service.measure('retry_interval', time);
    service.measure('retries', times.length);
    const { retryCnt } = service.peer;
    if (retryCnt === undefined) return service.notApplicable('the retry count is not known');
    if (times.length < retryCnt) service.fail(`${times.length} retransmissions, the retry count is ${retryCnt}`);
    if (times.length >= FOR_EVER && retryCnt === 7) service.deviates('forever', 'the retransmissions have no end');
    if (times.length > retryCnt)
      service.deviates('more', `${times.length} retransmissions, the retry count is ${retryCnt}`);
  },
};

const adaptive: RequesterCheck = {
  number: 26,
  name: 'adaptive-retransmission',
  title: 'Retransmissions of a peer that has measured the round trip do not flood the responder',
  clause: 'none: adapters are free to retransmit earlier than their timer',
  sends: 'ACKs of eight messages at once, and none of the ninth until it came eight times again',
  expects: `the times between retransmissions, reported as retransmission_interval; fewer than ${FLOOD} in one timeout`,
  asks: { anyOf: ACKNOWLEDGED, timeout: 14, retryCnt: 7 },
  async run(service) {
    for (let i = 0; i < 8; i++) await service.goesOn('the connection was made');
    const [message] = (await service.messages(1)) as [Message];
    const times = await withhold(service, message, FLOOD);
    for (const time of times.slice(0, 16)) service.measure('retransmission_interval', time);
    const within = times.filter((_, i) => times.slice(0, i + 1).reduce((a, b) => a + b, 0) <= service.timeout);
    if (within.length >= FLOOD) service.fail(`${within.length} retransmissions within one ACK timeout`);
  },
};

const repeatedNak: RequesterCheck = {
  number: 27,
  name: 'repeated-nak',
  title: 'Copies of one NAK do not use up the retries',
  clause: 'IBTA volume 1, chapter 9: retry counter of a requester',
  sends: 'the same NAK 0x60 three times more than the retry count',
  expects: 'the connection goes on; the transmissions of the missing packet are reported as nak_answers',
  counts: ['nak_answers'],
  asks: { anyOf: ACKNOWLEDGED, retryCnt: 3 },
  isIntrusive: true,
  async run(service) {
    service.ask(1, 4 * service.mtu);
    const message = await service.message();
    const [, missing] = message;
    if (missing === undefined) return service.notApplicable('its messages have one packet');
    for (let i = 0; i < (service.peer.retryCnt ?? 7) + 3; i++) service.refuse(missing.bth.psn);
    let answers = 0;
    await service.find(service.reaction, ({ bth }) => {
      if (bth.psn === missing.bth.psn) answers++;
      return false;
    });
    service.measure('nak_answers', answers);
    service.complete(message);
    await service.goesOn('copies of a NAK');
  },
};

const foreignNak: RequesterCheck = {
  number: 23,
  name: 'nak-not-in-flight',
  title: 'A NAK of a PSN that is not in flight is ignored',
  clause: 'IBTA volume 1, chapter 9: requester, ghost responses',
  sends: 'while a message waits for its ACK, a NAK 0x60 of a PSN before it, and one of a PSN that was never sent',
  expects: 'no packet because of them',
  asks: { anyOf: ACKNOWLEDGED, timeout: 14 },
  async run(service) {
    await service.goesOn('the connection was made');
    const acknowledged = await service.ignores('a NAK of a PSN that is acknowledged', async () => {
      const old = psnAfter(service.expected, -1);
      const [message] = (await service.messages(1)) as [Message];
      service.refuse(old);
      return message;
    });
    service.complete(acknowledged);
    const ahead = await service.ignores('a NAK of a PSN that was never sent', async () => {
      const [message] = (await service.messages(1)) as [Message];
      service.refuse(psnAfter(await service.rest(), 3));
      return message;
    });
    service.complete(ahead);
    await service.goesOn('the NAKs');
  },
};

/** Answers a SEND by RNR NAKs, each time that it comes. @returns the number of repetitions, at most `most` */
async function neverReady(service: Service, message: Message, most: number): Promise<number> {
  const { psn } = message[0].bth;
  await service.rest();
  for (let count = 0; count < most; count++) {
    service.notReady(psn, 12);
    if ((await service.again(psn)) === undefined) return count;
  }
  return most;
}

const rnrWait: RequesterCheck = {
  number: 28,
  name: 'rnr-wait',
  title: 'After an RNR NAK the peer waits as long as its timer says',
  clause: 'IBTA volume 1, chapter 9: RNR NAK, timer field',
  sends: 'RNR NAKs of a SEND with the codes 12 (0.64 ms), 20 (10.24 ms) and 26 (81.92 ms)',
  expects: 'the SEND not before; the times are reported as rnr_wait',
  known: { ignored: { of: 'rxe of 2022', what: 'the timer is not heeded' } },
  asks: { anyOf: ['SEND'] },
  async run(service) {
    for (const [code, time] of [
      [12, 640_000],
      [20, 10_240_000],
      // a peer that counts in ticks of its kernel shows by a longer one whether it counts at all
      [26, 81_920_000],
    ] as const) {
      const [message] = (await service.messages(1)) as [Message];
      await service.rest();
      const at = service.notReady(message[0].bth.psn, code);
      const again =
        (await service.again(message[0].bth.psn)) ?? service.fail('after an RNR NAK the SEND does not come');
      service.measure('rnr_wait', again.at - at);
      if (again.at - at < time * (1 - EARLY))
        service.deviates('ignored', `the SEND came after ${(again.at - at) / 1e6} ms instead of ${time / 1e6} ms`);
      service.complete(message);
    }
    await service.goesOn('the RNR NAKs');
  },
};

const rnrRetry: RequesterCheck = {
  number: 29,
  name: 'rnr-retry',
  title: 'A SEND without receive is sent again as often as the RNR retry count says, and then no more',
  clause: 'IBTA volume 1, chapter 9: RNR retry counter',
  sends: 'RNR NAKs of every transmission',
  expects: 'the number of retransmissions; it is reported as rnr_retries',
  counts: ['rnr_retries'],
  asks: { anyOf: ['SEND'], rnrRetry: 3 },
  isIntrusive: true,
  async run(service) {
    const most = service.peer.rnrRetry;
    if (most === undefined || most === 7) return service.notApplicable('the RNR retry count is 7 or not known');
    const [message] = (await service.messages(1)) as [Message];
    const count = await neverReady(service, message, FOR_EVER);
    service.measure('rnr_retries', count);
    if (count !== most) service.fail(`${count} retransmissions, the RNR retry count is ${most}`);
  },
};

const rnrForEver: RequesterCheck = {
  number: 29,
  name: 'rnr-retry-for-ever',
  title: 'An RNR retry count of 7 has no end',
  clause: 'IBTA volume 1, chapter 9: RNR retry counter, value 7',
  sends: `${FOR_EVER} RNR NAKs of one SEND, then an ACK`,
  expects: 'the SEND after each of them',
  asks: { anyOf: ['SEND'], rnrRetry: 7 },
  async run(service) {
    if (service.peer.rnrRetry !== 7) service.notApplicable('the RNR retry count is not 7');
    const [message] = (await service.messages(1)) as [Message];
    const count = await neverReady(service, message, FOR_EVER);
    if (count < FOR_EVER) service.fail(`the SEND came ${count} times after an RNR NAK, and then no more`);
    service.complete(message);
    await service.goesOn('the RNR NAKs');
  },
};

const credits: RequesterCheck = {
  number: 17,
  name: 'no-credits',
  title: 'Without credits the peer sends one SEND at a time, and WRITEs as it likes',
  clause: 'IBTA volume 1, chapter 9: end-to-end flow control, requester without credits',
  sends: 'ACKs with no credits',
  expects:
    'a WRITE, and SENDs that wait for the ACK of the one before; the times are reported as write_wait and credit_wait',
  known: { ignored: { of: 'rxe', what: 'credits are not heeded' } },
  asks: { anyOf: ['SEND'], timeout: 14, flowControl: true },
  async run(service) {
    if (service.peer.hasFlowControl === false) service.notApplicable('the connection has no flow control');
    if (service.peer.isOneByOne) service.notApplicable('it sends one message at a time');
    if (service.peer.isEndless) service.notApplicable('it sends messages that it is not asked for');
    const none = 0;
    const [opening] = (await service.messages(1)) as [Message];
    service.complete(opening, none);
    if (service.peer.offers.includes('WRITE')) {
      const asked = service.peer.request({ opcode: 'WRITE', length: 8, count: 1 });
      const write = await service.message('a WRITE without credits');
      service.measure('write_wait', write[0].at - asked);
      service.complete(write, none);
    }
    service.ask(3);
    for (let i = 0; i < 3; i++) {
      const from = service.port.now();
      const message = await service.message('a SEND without credits');
      service.measure('credit_wait', message[0].at - from);
      const isNew = ({ bth }: Received) => psnDistance(bth.psn, service.expected) >= 0;
      const more = await service.find(service.timeout / 2, isNew);
      if (more !== undefined)
        service.deviates('ignored', `${receivedText(more)} before the SEND before it is acknowledged`);
      service.complete(message, none);
    }
    service.ask();
    service.complete(await service.message('a SEND without credits'));
    await service.goesOn('credits without limit');
  },
};

/** In the order of their numbers. */
export const RETRY_CHECKS: readonly RequesterCheck[] = [
  credits,
  nakReaction,
  foreignNak,
  timeout,
  adaptive,
  retries,
  repeatedNak,
  rnrWait,
  rnrRetry,
  rnrForEver,
];
