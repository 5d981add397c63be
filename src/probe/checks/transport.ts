/** Checks of packets whose transport service is not that of the queue pair that they are sent to. */
import { datagram, uc } from '../packet/packets.js';
import type { ResponderCheck } from './check.js';
import { INTRUDER, intruder } from './headers.js';
import { pattern, type ResponderConversation } from './responderconversation.js';

/** The queue pair of rdma_cm, whose service is UD. */
const GENERAL_SERVICES = 1;
/** The queue key of datagrams that rdma_cm sets up. */
const Q_KEY = 0x0123_4567;
const CLAUSE = 'IBTA volume 1, chapter 9: packet validation, opcode and service of the queue pair';

/** Offset of the WRITE that follows a dropped packet. */
const BEHIND = 64;

/** Sends a packet that must be dropped: the peer stays silent, expects its PSN still, and its memory is unchanged. */
async function ignored(talk: ResponderConversation, what: string, send: (psn: number) => void): Promise<void> {
  const [before, behind] = [pattern(8, 1), pattern(8, 3)];
  await talk.done(talk.write(before), 'a WRITE');
  await talk.done(talk.write(before, BEHIND), 'a WRITE');
  const { psn } = talk;
  send(psn);
  await talk.silent(what, psn);
  await talk.done(talk.write(behind, BEHIND), `a WRITE after ${what}`);
  await talk.holds(BEHIND, behind, `${what} has taken a PSN: a WRITE with it is not carried out`);
  await talk.unchanged(0, before, pattern(8, INTRUDER), what);
}

const foreign: ResponderCheck = {
  number: 43,
  name: 'wrong-transport',
  title: 'UD and UC packets to an RC queue pair are dropped silently',
  clause: CLAUSE,
  sends: 'a UD SEND and a UC WRITE to the RC queue pair, with the PSN that it expects',
  expects: 'no answer, memory unchanged, and the PSN still expected',
  needs: { receives: false },
  isIntrusive: true,
  async run(talk) {
    const { srcQp } = talk.port.flow;
    await ignored(talk, 'a UD packet', (psn) => {
      talk.send(datagram.sendOnly({ psn, qkey: Q_KEY, srcQp, payload: pattern(8, INTRUDER), ackReq: true }));
    });
    await ignored(talk, 'a UC packet', (psn) => talk.send(uc(intruder(talk, psn))));
  },
};

const toDatagrams: ResponderCheck = {
  number: 43,
  name: 'rc-to-datagrams',
  title: 'An RC packet to queue pair 1 is dropped silently',
  clause: CLAUSE,
  sends: 'an RC WRITE to queue pair 1',
  expects: 'no answer, memory unchanged, and connections go on',
  needs: { receives: false },
  isIntrusive: true,
  async run(talk) {
    await ignored(talk, 'an RC packet to queue pair 1', (psn) => {
      talk.send(intruder(talk, psn), { destQp: GENERAL_SERVICES });
    });
  },
};

/** In the order of their numbers. */
export const TRANSPORT_CHECKS: readonly ResponderCheck[] = [foreign, toDatagrams];
