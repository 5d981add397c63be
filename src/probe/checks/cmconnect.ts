/** Checks of the answer of the peer's connection manager to a REQ, and of a REP whose RTU does not come. */
import type { CmCheck } from './check.js';
import { type CmConversation, type Connection, type ReceivedMad, timeOf, toldMad } from './cmconversation.js';
import { isSame } from './conversation.js';

const SERVICE = { connects: { service: true } } as const;
/** Nanoseconds of a millisecond. */
const MS = 1e6;
/** Time in which a manager answers by itself, without the program behind it (ns). */
const REACTION = 500 * MS;
/** Time without an answer after which a manager is held to be silent (ns). */
const SILENCE = 300 * MS;
/** Time in which a WRITE is acknowledged, however busy the peer is (ns). */
const DELIVERY = 1000 * MS;
/** Code of a response time that is short: 134 ms. Linux takes 128 ms for it. */
const SHORT = 15;
const PERIOD = timeOf(SHORT);
/** Periods in which a REP has to come again; the managers round up. */
const PATIENCE = 16;
/** Periods without a REP after which it is held to come no more. */
const QUIET = 6;
/** A REP must not come again before this part of its period: Linux takes 128 ms for 134 ms. */
const EARLY = 0.9;
/** REPs that may be on their way when the peer learns that we are ready. */
const LATE = 1;
/** The longest response time: what comes again in spite of it was asked for. */
const LONG = 20;
/** Code of the service timeout of an MRA: 1.07 s. */
const SERVICE_TIMEOUT = 18;
/** Part of the service timeout after which we get ready. */
const MOST = 0.8;

/** Returns the next REP of a connection within a time. Fails when it is another one than the first. */
async function repAgain(talk: CmConversation, connection: Connection, within: number, what: string) {
  const answer = await talk.about(connection, within);
  if (answer === undefined || answer.name === 'REJ') return undefined;
  if (answer.name !== 'REP') return talk.fail(`${what}: ${toldMad(answer)} instead of the REP`);
  const first = connection.rep as ReceivedMad<'REP'>;
  if (!isSame(answer.bytes, first.bytes)) talk.fail(`${what}: the REP is another one: ${changed(first, answer)}`);
  return answer;
}

/** Returns what differs between two REPs. */
function changed(before: ReceivedMad<'REP'>, after: ReceivedMad<'REP'>): string {
  const names = ['localCommId', 'localQpn', 'startingPsn'] as const;
  const found = names.filter((name) => before.fields[name] !== after.fields[name]);
  const texts = found.map(
    (name) => `${name} 0x${after.fields[name].toString(16)}, not ${before.fields[name].toString(16)}`,
  );
  return texts.join(', ') || 'its other fields differ';
}

/** Fails unless the connection carries data. */
async function carries(talk: CmConversation, connection: Connection, index: number, when: string): Promise<void> {
  if ((await talk.write(connection, index, DELIVERY)) === undefined) talk.fail(`no ACK of a WRITE ${when}`);
}

/** Numbers 44 and 45. */
export const CM_CONNECT_CHECKS: readonly CmCheck[] = [
  {
    number: 44,
    name: 'rep-fields',
    title: 'The fields of a REP are legal',
    clause: 'IBTA 12.6.8, 12.7',
    sends: 'a REQ, an RTU, a DREQ',
    expects:
      'a REP with the ids of the REQ, a queue pair number from 2 to 0xFFFFFE, a failover code of 0 to 2, a CA GUID',
    counts: [
      ...['target_ack_delay', 'rnr_retry', 'flow_control', 'srq'],
      ...['responder_resources', 'initiator_depth', 'failover'],
    ],
    ...SERVICE,
    async run(talk) {
      const { rep, req, tid } = await talk.established();
      const { fields, header } = rep;
      if (header.tid !== tid) talk.fail(`the transaction id is 0x${header.tid.toString(16)}, not that of the REQ`);
      if (fields.remoteCommId !== req.localCommId)
        talk.fail(`the remote communication id is 0x${fields.remoteCommId.toString(16)}, not that of the REQ`);
      if (header.status !== 0) talk.fail(`the status of the MAD is 0x${header.status.toString(16)}`);
      const { localQpn, failover, localCaGuid, reserved } = fields;
      if (localQpn < 2 || localQpn === 0xffffff) talk.fail(`the queue pair number is ${localQpn}`);
      if (failover === 3) talk.fail('the failover code is 3, which is reserved');
      if (localCaGuid === 0n) talk.fail('the CA GUID is 0');
      if (reserved !== 0) talk.fail(`the reserved bits of byte 27 are ${reserved}`);
      talk.measure('target_ack_delay', fields.targetAckDelay);
      talk.measure('rnr_retry', fields.rnrRetryCount);
      talk.measure('flow_control', fields.flowControl);
      talk.measure('srq', fields.srq);
      talk.measure('responder_resources', fields.responderResources);
      talk.measure('initiator_depth', fields.initiatorDepth);
      talk.measure('failover', failover);
    },
  },
  {
    number: 44,
    name: 'rep-depths',
    title: 'A REP asks for no more READs in flight than the REQ offers',
    clause: 'IBTA 12.7.29, 12.7.30',
    sends: 'REQs with 16, 1 and 0 responder resources',
    expects: 'REPs whose initiator depth is not above them',
    ...SERVICE,
    async run(talk) {
      for (const resources of [16, 1, 0]) {
        const { rep } = await talk.established({ responderResources: resources, initiatorDepth: resources });
        const { initiatorDepth } = rep.fields;
        if (initiatorDepth > resources)
          talk.fail(`the REP has initiator depth ${initiatorDepth}, the REQ has responder resources ${resources}`);
      }
    },
  },
  {
    number: 45,
    name: 'duplicate-req',
    title: 'A REQ that comes again gets the same REP',
    clause: 'IBTA 12.9.8.3.1',
    sends: 'a REQ, and after its REP the same REQ again',
    expects: 'the same REP, byte by byte',
    known: {
      silent: { of: 'Linux', what: 'it drops a REQ that comes again; the REP is repeated by its own timer alone' },
    },
    ...SERVICE,
    async run(talk) {
      const connection = await talk.connect({ localResponseTimeout: LONG });
      const at = talk.ask(connection);
      const again = await repAgain(talk, connection, REACTION, 'a REQ that comes again');
      if (again === undefined) return talk.deviates('silent', 'no answer to a REQ that comes again');
      talk.measure('rep_of_duplicate', again.at - at);
    },
  },
  {
    number: 45,
    name: 'rep-repeated',
    title: 'A REP is repeated while no RTU comes, as often as the REQ permits',
    clause: 'IBTA 12.7.27, 12.9.8.5',
    sends: 'a REQ with a response time of 134 ms and 3 retries, and no RTU',
    expects: 'the same REP again, 1 to 3 times, each not before 0.9 of its time',
    counts: ['rep_repetitions'],
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      // counted from the REQ, so that a REP that is read late makes none early
      const start = talk.port.now();
      const connection = await talk.connect({ localResponseTimeout: SHORT, maxCmRetries: 3 });
      let before = connection.rep.at;
      let count = 0;
      for (; count <= 4; count++) {
        const periods = count === 0 ? PATIENCE : QUIET;
        const rep = await repAgain(talk, connection, periods * PERIOD, 'a REP that is repeated');
        if (rep === undefined) break;
        talk.measure('rep_interval', rep.at - before);
        if (rep.at - start < EARLY * PERIOD * (count + 1))
          talk.fail(
            `REP ${count + 2} comes ${Math.round((rep.at - start) / MS)} ms after the REQ, the period is 134 ms`,
          );
        before = rep.at;
      }
      if (count === 0) talk.fail('the REP does not come again');
      if (count > 3) talk.fail('the REP comes again 4 times, the REQ permits 3');
      talk.measure('rep_repetitions', count);
    },
  },
  {
    number: 45,
    name: 'late-rtu',
    title: 'An RTU after a repeated REP completes the connection',
    clause: 'IBTA 12.9.7.2',
    sends: 'a REQ, an RTU after the second REP, and a WRITE of no bytes',
    expects: 'at most one REP that was on its way, and an ACK',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.connect({ localResponseTimeout: SHORT });
      const again = await repAgain(talk, connection, PATIENCE * PERIOD, 'a REP that is repeated');
      if (again === undefined) return talk.notApplicable('the REP does not come again');
      talk.measure('rep_interval', again.at - connection.rep.at);
      talk.ready(connection);
      for (let late = 0; ; late++) {
        const other = await talk.about(connection, QUIET * PERIOD);
        if (other === undefined) break;
        // a busy peer may have repeated it before it took the RTU
        if (other.name !== 'REP' || late === LATE) talk.fail(`${toldMad(other)} after the RTU`);
        talk.ready(connection);
      }
      await carries(talk, connection, 0, 'after the RTU');
    },
  },
  {
    number: 45,
    name: 'duplicate-rtu',
    title: 'An RTU that comes again changes nothing',
    clause: 'IBTA 12.9.7.2',
    sends: 'a REQ, an RTU twice, and a WRITE of no bytes',
    expects: 'no answer to the second RTU, and an ACK',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.established();
      talk.ready(connection);
      const other = await talk.about(connection, SILENCE);
      if (other !== undefined) talk.fail(`${toldMad(other)} after a second RTU`);
      await carries(talk, connection, 0, 'after a second RTU');
    },
  },
  {
    number: 45,
    name: 'data-implies-rtu',
    title: 'Data stands for an RTU that is lost',
    clause: 'IBTA 12.9.7.2, 11.6.3.2 (communication established)',
    sends: 'a REQ, and a WRITE of no bytes instead of the RTU',
    expects: 'an ACK, and at most one REP that was on its way',
    known: {
      repeats: {
        of: 'Linux with a queue pair that is in RTS already',
        what: 'the REP is repeated until the RTU comes',
      },
    },
    ...SERVICE,
    async run(talk) {
      const connection = await talk.connect({ localResponseTimeout: SHORT });
      await carries(talk, connection, 0, 'before the RTU');
      let late = 0;
      const again = await talk.find(QUIET * PERIOD, ({ name }) => name === 'REP' && late++ === LATE);
      await carries(talk, connection, 1, 'before the RTU, the second one');
      if (again !== undefined) talk.deviates('repeats', 'the REP comes again after data');
    },
  },
  {
    number: 45,
    name: 'mra-of-rep',
    title: 'An MRA gives us the time that it asks for',
    clause: 'IBTA 12.6.6, 12.9.8.5',
    sends:
      'a REQ with a response time of 134 ms and 1 retry, an MRA of 1.07 s, an RTU 0.9 s later, a WRITE of no bytes',
    expects: 'no REJ before the time of the MRA is over, and an ACK',
    counts: ['rep_during_mra'],
    ...SERVICE,
    async run(talk) {
      const connection = await talk.connect({ localResponseTimeout: SHORT, maxCmRetries: 1 });
      talk.tell('MRA', { ...connection.ids, subject: 1, serviceTimeout: SERVICE_TIMEOUT }, { tid: connection.tid });
      const until = talk.port.now() + MOST * timeOf(SERVICE_TIMEOUT);
      let repeated = 0;
      for (;;) {
        const mad = await talk.about(connection, until - talk.port.now());
        if (mad === undefined) break;
        if (mad.name !== 'REP') talk.fail(`${toldMad(mad)} while an MRA holds`);
        repeated++;
      }
      talk.measure('rep_during_mra', repeated);
      talk.ready(connection);
      const other = await talk.about(connection, SILENCE);
      if (other !== undefined && other.name !== 'REP') talk.fail(`${toldMad(other)} to the RTU after an MRA`);
      await carries(talk, connection, 0, 'after an MRA and the RTU');
    },
  },
];
