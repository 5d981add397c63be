/** Checks of the end of a connection of the peer. */
import type { CmCheck } from './check.js';
import { type CmConversation, type Connection, Reason, timeOf, toldMad } from './cmconversation.js';

const [SERVICE, MANAGER] = [{ connects: { service: true } }, { connects: { service: false } }] as const;
/** Nanoseconds of a millisecond. */
const MS = 1e6;
/** Time in which a manager answers by itself, without the program behind it (ns). */
const REACTION = 500 * MS;
/** Time without an answer after which a manager is held to be silent (ns). */
const SILENCE = 300 * MS;
/** Time in which a WRITE is acknowledged, however busy the peer is (ns). */
const DELIVERY = 1000 * MS;
/** Code of a response time that is short (134 ms), and the number of periods in which a REP has come again. */
const [SHORT, QUIET] = [15, 8];

/** Ends a connection. A peer that sends no DREP is for the check of the DREQ to judge. */
async function end(talk: CmConversation, connection: Connection): Promise<void> {
  if ((await talk.end(connection)) === undefined) talk.notApplicable('no answer to a DREQ');
}

/** Number 47. */
export const CM_END_CHECKS: readonly CmCheck[] = [
  {
    number: 47,
    name: 'dreq',
    title: 'A DREQ is answered by a DREP',
    clause: 'IBTA 12.6.11, 12.9.7',
    sends: 'a REQ, an RTU, a DREQ',
    expects: 'a DREP with the ids of the DREQ',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.established();
      const at = talk.port.now();
      const drep = await talk.end(connection);
      if (drep === undefined) return talk.fail('no answer to a DREQ');
      talk.measure('drep', drep.at - at);
      const { localCommId, remoteCommId } = connection.ids;
      const { fields, header } = drep;
      if (fields.localCommId !== remoteCommId || fields.remoteCommId !== localCommId)
        talk.fail('the DREP has other communication ids than the DREQ');
      if (header.tid !== connection.tid + 1n) talk.fail('the DREP has another transaction id than the DREQ');
    },
  },
  {
    number: 47,
    name: 'duplicate-dreq',
    title: 'A DREQ that comes again is answered again',
    clause: 'IBTA 12.9.8.3.2',
    sends: 'a REQ, an RTU, and a DREQ twice',
    expects: 'a DREP twice',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.established();
      await end(talk, connection);
      talk.farewell(connection);
      const again = await talk.about(connection, REACTION);
      if (again === undefined) return talk.fail('no answer to a DREQ that comes again');
      if (again.name !== 'DREP') talk.fail(`a DREQ that comes again: ${toldMad(again)} instead of a DREP`);
    },
  },
  {
    number: 47,
    name: 'unknown-dreq',
    title: 'A DREQ of no connection is answered by a DREP, or not at all',
    clause: 'IBTA 12.9.8.3.2',
    sends: 'a DREQ with ids that no connection has',
    expects: 'a DREP with the same ids, or silence',
    counts: ['answers_to_unknown_dreq'],
    ...MANAGER,
    async run(talk) {
      const { req, tid, queue } = await talk.prepare();
      const ids = { localCommId: req.localCommId, remoteCommId: req.localCommId ^ 0x5a5a5a5a };
      talk.tell('DREQ', { ...ids, remoteQpn: queue.qpn }, { tid });
      const answer = await talk.find(REACTION, ({ header }) => header.tid === tid);
      talk.measure('answers_to_unknown_dreq', answer === undefined ? 0 : 1);
      if (answer === undefined) return;
      if (answer.name !== 'DREP') return talk.fail(`a DREQ of no connection: ${toldMad(answer)} instead of a DREP`);
      if (answer.fields.remoteCommId !== ids.localCommId) talk.fail('the DREP has other ids than the DREQ');
    },
  },
  {
    number: 47,
    name: 'dreq-of-other-queue',
    title: 'A DREQ that names another queue pair does not end the connection',
    clause: 'IBTA 12.6.10',
    sends: 'a REQ, an RTU, a DREQ with another remote queue pair number, a WRITE of no bytes',
    expects: 'no DREP, and an ACK',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.established();
      const remoteQpn = connection.rep.fields.localQpn ^ 1;
      talk.tell('DREQ', { ...connection.ids, remoteQpn }, { tid: connection.tid + 1n });
      const answer = await talk.about(connection, SILENCE);
      if (answer?.name === 'DREP') talk.fail('a DREQ that names another queue pair is answered by a DREP');
      if ((await talk.write(connection, 0, DELIVERY)) === undefined)
        talk.fail('no ACK of a WRITE after a DREQ that names another queue pair');
    },
  },
  {
    number: 47,
    name: 'stale-req',
    title: 'A REQ whose queue pair is connected already is refused with reason 10',
    clause: 'IBTA 12.9.8.3.1, 12.6.7.2',
    sends: 'a REQ, an RTU, and another REQ with the same queue pair number',
    expects: 'a REJ with reason 10, stale connection',
    counts: ['dreq_of_stale'],
    ...SERVICE,
    async run(talk) {
      const first = await talk.established();
      // the peer has taken the RTU when it has answered what came after it
      await talk.write(first, 0, DELIVERY);
      const second = await talk.prepare({ localQpn: first.queue.qpn });
      talk.ask(second);
      const answer = await talk.about(second, REACTION);
      if (answer === undefined) return talk.fail('no answer to a REQ whose queue pair is connected');
      if (answer.name !== 'REJ')
        return talk.fail(`a REQ whose queue pair is connected: ${toldMad(answer)} instead of a REJ`);
      const { reason } = answer.fields;
      if (reason !== Reason.STALE_CONNECTION) talk.fail(`the reason is ${reason}, not 10`);
      // the manager ends the old connection too, by a DREQ, which is answered while we wait
      await talk.about(first, SILENCE);
      talk.measure('dreq_of_stale', first.hasEnded ? 1 : 0);
    },
  },
  {
    number: 47,
    name: 'rej-of-rep',
    title: 'A REJ of its REP ends the attempt',
    clause: 'IBTA 12.6.7, 12.9.7.2',
    sends: 'a REQ, and a REJ of the REP',
    expects: 'no further REP',
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      const connection = await talk.connect({ localResponseTimeout: SHORT });
      talk.refuse(connection, Reason.CONSUMER);
      const answer = await talk.about(connection, QUIET * timeOf(SHORT));
      if (answer !== undefined) talk.fail(`${toldMad(answer)} after a REJ of the REP`);
    },
  },
  {
    number: 47,
    name: 'quiet-after-drep',
    title: 'After its DREP the peer says no more',
    clause: 'IBTA 12.9.7, 10.3.1 (error state)',
    sends: 'a REQ, an RTU, a DREQ, and after the DREP an RTU and a WRITE of no bytes',
    expects: 'neither a message nor an ACK',
    ...SERVICE,
    async run(talk) {
      const connection = await talk.established();
      await end(talk, connection);
      talk.ready(connection);
      const packet = await talk.write(connection, 0, SILENCE);
      if (packet !== undefined) talk.fail('a WRITE is acknowledged after the DREP');
      const mad = await talk.about(connection, SILENCE);
      if (mad !== undefined) talk.fail(`${toldMad(mad)} after the DREP`);
    },
  },
];
