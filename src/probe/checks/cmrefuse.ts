/** Checks of the answers of the peer's connection manager to requests that it cannot serve. */
import { cmaHeader, encodeMad, gidOf, Method, TransportType } from '../packet/mad.js';
import type { CmCheck } from './check.js';
import { type CmConversation, type Connection, Reason, type ReceivedMad, toldMad } from './cmconversation.js';

const [SERVICE, MANAGER] = [{ connects: { service: true } }, { connects: { service: false } }] as const;
/** Nanoseconds of a millisecond. */
const MS = 1e6;
/** Time in which a manager refuses (ns), and how often a request is sent for it. */
const [REFUSAL, REQUESTS] = [1000 * MS, 2];
/** Time without an answer after which a malformed datagram is held to be dropped (ns). */
const SILENCE = 100 * MS;
/** Addresses of nobody (RFC 5737, RFC 3849). */
const [NOBODY4, NOBODY6] = ['192.0.2.254', '2001:db8::fe'];
/** SIDR_REP: the service id is not supported (IBTA 12.11.2). */
const UNSUPPORTED = 1;

/** A queue key that no queue pair has. */
const OTHER_KEY = 0x1111_1111;

/** Sends the REQ of a connection, and waits for the answer. */
async function answerTo(talk: CmConversation, connection: Connection): Promise<ReceivedMad | undefined> {
  for (let sent = 0; sent < REQUESTS; sent++) {
    talk.ask(connection);
    const answer = await talk.about(connection, REFUSAL);
    if (answer !== undefined) return answer;
  }
  return undefined;
}

/** Returns the REJ of a REQ. Fails when another message or none comes. */
async function refusal(talk: CmConversation, connection: Connection, what: string): Promise<ReceivedMad<'REJ'>> {
  const answer = await answerTo(talk, connection);
  if (answer === undefined) return talk.fail(`no answer to ${what}`);
  return answer.name === 'REJ' ? answer : talk.fail(`${what}: ${toldMad(answer)} instead of a REJ`);
}

/** The peer still answers: it accepts a connection. */
async function alive(talk: CmConversation, after: string): Promise<void> {
  const answer = await answerTo(talk, await talk.prepare());
  if (answer?.name !== 'REP') talk.fail(`no REP to a REQ after ${after}`);
}

/** Number 46. */
export const CM_REFUSE_CHECKS: readonly CmCheck[] = [
  {
    number: 46,
    name: 'unknown-service',
    title: 'A REQ for a service that nobody serves is refused with reason 8',
    clause: 'IBTA 12.6.7.2, 12.9.8.3.1',
    sends: 'a REQ with a service id that nobody listens on',
    expects: 'a REJ of the REQ with reason 8, invalid service id, and the ids of the REQ',
    ...MANAGER,
    async run(talk) {
      const connection = await talk.prepare({ serviceId: talk.peer.unknownService });
      const { fields, header } = await refusal(talk, connection, 'a REQ for an unknown service');
      const { reason, subject, remoteCommId } = fields;
      if (reason !== Reason.INVALID_SERVICE_ID) talk.fail(`the reason is ${reason}, not 8`);
      if (subject !== 0) talk.fail(`the REJ is about message ${subject}, not about the REQ`);
      if (remoteCommId !== connection.req.localCommId || header.tid !== connection.tid)
        talk.fail('the REJ has other ids than the REQ');
    },
  },
  {
    number: 46,
    name: 'other-transport',
    title: 'A REQ of a transport that the service does not have is refused with reason 9',
    clause: 'IBTA 12.6.7.2',
    sends: 'REQs of UC and of RD for a service of RC',
    expects: 'REJs with reason 9, invalid transport service type',
    known: { consumer: { of: 'Linux', what: 'rdma_cm refuses it with reason 28, as if the program had' } },
    ...SERVICE,
    async run(talk) {
      const reasons: number[] = [];
      for (const transport of [TransportType.UC, TransportType.RD]) {
        const { fields } = await refusal(talk, await talk.prepare({ transport }), 'a REQ of another transport');
        reasons.push(fields.reason);
      }
      const wrong = reasons.filter((reason) => reason !== Reason.INVALID_TRANSPORT);
      const text = `the reason is ${wrong.join(' and ')}, not 9`;
      if (wrong.some((reason) => reason !== Reason.CONSUMER)) talk.fail(text);
      if (wrong.length > 0) talk.deviates('consumer', text);
    },
  },
  {
    number: 46,
    name: 'other-address',
    title: 'A REQ for another address is refused with reason 12',
    clause: 'IBTA 12.6.7.2',
    sends: 'a REQ whose primary remote GID is none of the peer',
    expects: 'a REJ with reason 12, invalid GID',
    ...SERVICE,
    async run(talk) {
      const nobody = talk.port.flow.dstIp.includes(':') ? NOBODY6 : NOBODY4;
      const connection = await talk.prepare({ remoteGid: gidOf(nobody) });
      const { reason } = (await refusal(talk, connection, 'a REQ for another address')).fields;
      if (reason !== Reason.INVALID_GID) talk.fail(`the reason is ${reason}, not 12`);
    },
  },
  {
    number: 46,
    name: 'invalid-mtu',
    title: 'A REQ with a path MTU that does not exist is refused',
    clause: 'IBTA 12.6.7.2, 12.7.16',
    sends: 'a REQ with path MTU code 7',
    expects: 'a REJ with reason 26, invalid path MTU',
    known: { consumer: { of: 'Linux', what: 'the program finds it, and refuses with reason 28' } },
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      const connection = await talk.prepare({ pathMtu: 7 });
      const { reason } = (await refusal(talk, connection, 'a REQ with path MTU code 7')).fields;
      if (reason === Reason.CONSUMER) talk.deviates('consumer', 'the reason is 28, not 26');
      if (reason !== Reason.INVALID_MTU) talk.fail(`the reason is ${reason}, not 26`);
    },
  },
  {
    number: 46,
    name: 'private-data-header',
    title: "A REQ with an unknown header of rdma_cm's private data is refused",
    clause: 'IBTA annex A11',
    sends: 'REQs whose private data have version 1, and IP version 9',
    expects: 'no REP, and one to a further REQ',
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      const { srcIp, dstIp } = talk.port.flow;
      for (const [version, ipVersion] of [
        [1, undefined],
        [0, 9],
      ] as const) {
        const privateData = cmaHeader(srcIp, dstIp, 0x8000, version, ipVersion);
        const what = version === 1 ? 'version 1' : 'IP version 9';
        const connection = await talk.prepare({ privateData });
        talk.ask(connection);
        const answer = await talk.about(connection, SILENCE);
        if (answer?.name === 'REP') talk.fail(`private data of ${what} are accepted`);
      }
      await alive(talk, 'unknown private data');
    },
  },
  {
    number: 46,
    name: 'mad-header',
    title: 'A datagram with a header that is not that of a REQ is no REQ',
    clause: 'IBTA 13.4.3, 13.4.5, 16.7.1',
    sends:
      'REQs with base version 2, class version 1, the methods Get and 0x7F, the attribute 0x7FF; and half of a REQ',
    expects: 'no REP, and one to a further REQ',
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      const headers = {
        'base version 2': { baseVersion: 2 },
        'class version 1': { classVersion: 1 },
        'method Get': { method: Method.GET },
        'method 0x7F': { method: 0x7f },
        'attribute 0x7FF': { attribute: 0x7ff },
      };
      for (const [what, header] of Object.entries(headers)) {
        const connection = await talk.prepare();
        talk.ask(connection, header);
        const answer = await talk.about(connection, SILENCE);
        if (answer?.name === 'REP') talk.fail(`a REQ with ${what} is accepted`);
      }
      const { req } = await talk.prepare();
      talk.sendMad(encodeMad('REQ', req).subarray(0, 128));
      if ((await talk.find(SILENCE, ({ name }) => name === 'REP')) !== undefined)
        talk.fail('half of a REQ is accepted');
      await alive(talk, 'datagrams with other headers');
    },
  },
  {
    number: 46,
    name: 'wrong-queue-key',
    title: 'A datagram with another queue key is dropped silently',
    clause: 'IBTA volume 1, chapter 9: packet validation, queue key; 3.9.4: queue key of queue pair 1',
    sends: 'a REQ with the queue key 0x11111111',
    expects: 'no answer, and a REP to a further REQ',
    isIntrusive: true,
    ...SERVICE,
    async run(talk) {
      const connection = await talk.prepare();
      talk.ask(connection, {}, OTHER_KEY);
      const answer = await talk.about(connection, SILENCE);
      if (answer !== undefined) talk.fail(`a REQ with another queue key: ${toldMad(answer)} instead of silence`);
      await alive(talk, 'a datagram with another queue key');
    },
  },
  {
    number: 46,
    name: 'unknown-datagram-service',
    title: 'A SIDR_REQ for a service that nobody serves is refused with status 1',
    clause: 'IBTA 12.11.1, 12.11.2',
    sends: 'a SIDR_REQ with a service id that nobody listens on',
    expects: 'a SIDR_REP with status 1, service id not supported, and the request id',
    ...MANAGER,
    async run(talk) {
      const { req, tid } = await talk.prepare();
      const { srcIp, dstIp, pkey } = talk.port.flow;
      // the same port in the port space of datagrams
      const serviceId = (0x0111n << 16n) | (talk.peer.unknownService & 0xffffn);
      const requestId = req.localCommId;
      for (let sent = 0; sent < REQUESTS; sent++) {
        talk.tell('SIDR_REQ', { requestId, pkey, serviceId, privateData: cmaHeader(srcIp, dstIp, 0x8000) }, { tid });
        const answer = await talk.find(REFUSAL, ({ header }) => header.tid === tid);
        if (answer === undefined) continue;
        if (answer.name !== 'SIDR_REP') return talk.fail(`a SIDR_REQ: ${toldMad(answer)} instead of a SIDR_REP`);
        const { fields } = answer;
        if (fields.status !== UNSUPPORTED) talk.fail(`the status is ${fields.status}, not 1`);
        if (fields.requestId !== requestId) talk.fail(`the request id is 0x${fields.requestId.toString(16)}, not ours`);
        return;
      }
      talk.notApplicable('the peer answers no SIDR_REQ');
    },
  },
  {
    number: 46,
    name: 'class-port-info',
    title: 'The connection manager tells what it can do',
    clause: 'IBTA 13.4.8.1, 16.7.3.1',
    sends: 'a Get of ClassPortInfo',
    expects: 'base version 1 and class version 2',
    counts: ['capability_mask', 'response_time_code'],
    known: { none: { of: 'Linux', what: 'it has no ClassPortInfo of communication management' } },
    ...MANAGER,
    async run(talk) {
      const { tid } = await talk.prepare();
      talk.tell('CLASS_PORT_INFO', {}, { tid, method: Method.GET });
      const answer = await talk.find(REFUSAL, ({ header }) => header.tid === tid);
      if (answer === undefined) return talk.deviates('none', 'no answer to a Get of ClassPortInfo');
      if (answer.name !== 'CLASS_PORT_INFO' || answer.header.method !== Method.GET_RESP)
        return talk.fail(`a Get of ClassPortInfo: ${toldMad(answer)} instead of a response`);
      const { header, fields } = answer;
      if (header.status !== 0) talk.deviates('none', `the status is 0x${header.status.toString(16)}`);
      const { baseVersion, classVersion, capabilities, responseTime } = fields;
      if (baseVersion !== 1 || classVersion !== 2)
        talk.fail(`base version ${baseVersion} and class version ${classVersion}, not 1 and 2`);
      talk.measure('capability_mask', capabilities);
      talk.measure('response_time_code', responseTime);
    },
  },
];
