/** Checks of congestion notification: when CNPs come, how they look, when they must not come, and what they cause. */
import { encodeFrame, cnp as notification } from '../packet/packets.js';
import type { Check, RequesterCheck, ResponderCheck } from './check.js';
import { Nak, REQUESTS, type ResponderConversation } from './responderconversation.js';
import type { Service } from './service.js';

/** ECN: congestion experienced. */
const MARKED = { trafficClass: 3 };
const BURST = 20;
/** Adapters send a CNP in 50 us at most: a burst over less time than that for each packet has fewer CNPs (ns). */
const BURST_TIME = BURST * 50e3;

/** Sends marked requests. @returns the number of CNPs that came for them, and the time over which they left (ns) */
async function marked(talk: ResponderConversation, count: number) {
  const before = talk.cnps.length;
  const there = { ...talk.port.flow, ...MARKED };
  // made before, so that they leave close together
  const frames = Array.from({ length: count }, (_, i) => encodeFrame(there, talk.request(i)));
  const times = frames.map((bytes) => talk.sendFrame(bytes));
  while ((await talk.next(20e6)) !== undefined);
  return { count: talk.cnps.length - before, took: (times.at(-1) ?? 0) - (times[0] ?? 0) };
}

const cnp: ResponderCheck = {
  number: 48,
  name: 'cnp',
  title: 'Marked packets are answered by CNPs, one for each interval and not for each packet',
  clause: 'IBTA annex A17 (RoCEv2): congestion management',
  sends: `a marked request, then ${BURST} of them at once`,
  expects: 'a CNP for the first one, and fewer CNPs than packets for the others; counted as cnps_of_burst',
  counts: ['cnps_of_burst'],
  known: { none: { of: 'rxe', what: 'marked packets cause no CNP, so that senders do not slow down' } },
  needs: REQUESTS,
  async run(talk) {
    if ((await marked(talk, 1)).count === 0) talk.deviates('none', 'no CNP for a marked packet');
    const { count, took } = await marked(talk, BURST);
    talk.measure('cnps_of_burst', count);
    if (count === 0) talk.fail(`no CNP for ${BURST} marked packets`);
    if (count < BURST) return;
    if (took > BURST_TIME) talk.notApplicable(`the burst took ${took / 1e6} ms, which is time for ${BURST} CNPs`);
    talk.fail(`${count} CNPs for ${BURST} marked packets`);
  },
};

const layout: ResponderCheck = {
  number: 49,
  name: 'cnp-layout',
  title: 'A CNP has opcode 0x81, BECN, PSN 0 and sixteen bytes of zeroes',
  clause: 'IBTA annex A17 (RoCEv2): format of the CNP',
  sends: 'a marked request',
  expects: 'a CNP to the queue pair number of the sender, as the annex has it',
  needs: REQUESTS,
  async run(talk) {
    await marked(talk, 1);
    const [first] = talk.cnps;
    if (first === undefined) talk.notApplicable('the peer sends no CNP');
    const { bth, payload } = first;
    const { srcQp } = talk.peer.port.flow;
    if (bth.destQp !== srcQp) talk.fail(`the CNP goes to queue pair ${bth.destQp} instead of ${srcQp}`);
    if (!bth.becn) talk.fail('the CNP lacks BECN');
    if (bth.psn !== 0) talk.fail(`the CNP has PSN ${bth.psn} instead of 0`);
    if (bth.ackReq || bth.solicited) talk.fail('the CNP requests an ACK or an event');
    if (payload.length !== 16 || payload.some((byte) => byte !== 0)) talk.fail('the CNP has no sixteen zeroes');
  },
};

const cnpWithNak: ResponderCheck = {
  number: 50,
  name: 'nak-without-cnp',
  title: 'A gap in the PSNs causes no CNP',
  clause: 'IBTA annex A17 (RoCEv2): congestion management',
  sends: 'an unmarked request beyond a gap',
  expects: 'a NAK, no CNP',
  known: { slow: { of: 'CX5, CX6 with slow restart', what: 'a CNP comes with the NAK' } },
  needs: REQUESTS,
  async run(talk) {
    talk.take();
    talk.send(talk.request());
    const answer = await talk.next();
    if (answer?.aeth?.syndrome !== Nak.SEQUENCE) talk.notApplicable('the peer does not answer a gap by a NAK');
    await talk.next(20e6);
    if (talk.cnps.length > 0) talk.deviates('slow', 'a CNP comes with the NAK');
  },
};

/** Packets of a flow, each a message of its own. */
const FLOW_PACKETS = 128;
/** Flows without CNPs and with them, in turn. The quickest of each count, as a busy host delays some. */
const FLOWS = 4;
/** ACKs leave so long after the first packet that they are for, so that windows show as well as rates (ns). */
const ROUND_TRIP = 10e6;
/** CNPs before a flow, so far apart (ns) that each of them counts, and CNPs in each round trip of it. */
const FIRST_CNPS = 12;
const CNP_PAUSE = 2e6;
const ROUND_CNPS = 4;
/** CNPs over a longer time may not lower a rate that rises again (ns). */
const CNPS_TIME = 100e6;
/** A flow that takes so many times as long is slower, whatever a busy host adds. */
const SLOWER = 1.5;
/** Time in which the rate has to recover, and the pauses between flows that look whether it has (ns). */
const RECOVERY = 5e9;
const PAUSE = 20e6;

/** Sends CNPs while a message of the peer is in flight, as they are for such. */
async function notify(service: Service): Promise<void> {
  service.ask();
  const message = await service.message();
  const times: number[] = [];
  for (let i = 0; i < FIRST_CNPS; i++) {
    times.push(service.send(notification()));
    await service.next(CNP_PAUSE);
  }
  service.complete(message);
  const took = (times.at(-1) ?? 0) - (times[0] ?? 0);
  if (took > CNPS_TIME) service.notApplicable(`the rate is too low: ${FIRST_CNPS} CNPs took ${took / 1e6} ms`);
}

/** Asks for messages of one packet each. @returns the time from the first to the last of them (ns) */
async function flowTime(service: Service, cnpsPerRound = 0): Promise<number> {
  service.ask(FLOW_PACKETS, service.mtu);
  const [{ at: start, bth }] = await service.message();
  let [psn, count, waiting, end, due] = [bth.psn, 1, 1, start, service.port.now() + ROUND_TRIP];
  while (count < FLOW_PACKETS) {
    const packet = await service.following(waiting > 0 ? Math.max(0, due - service.port.now()) : service.patience);
    if (packet !== undefined) {
      if (waiting++ === 0) due = service.port.now() + ROUND_TRIP;
      count++;
      psn = packet.bth.psn;
      end = packet.at;
    } else if (waiting === 0) service.fail(`packet ${count + 1} of ${FLOW_PACKETS} does not come`);
    else {
      service.completeAll(waiting, psn);
      for (let i = 0; i < cnpsPerRound; i++) service.send(notification());
      waiting = 0;
    }
  }
  service.completeAll(waiting, psn);
  return end - start;
}

/** Waits until flows take less than `limit` (ns). @returns the time that it took (ns), unless that is too long */
async function recovery(service: Service, limit: number): Promise<number | undefined> {
  const start = service.port.now();
  while ((await flowTime(service)) > limit) {
    if (service.port.now() - start > RECOVERY) return undefined;
    await service.find(PAUSE, () => false);
  }
  return service.port.now() - start;
}

const cnpRate: RequesterCheck = {
  number: 51,
  name: 'cnp-rate',
  title: 'CNPs lower the rate of a sender, and it recovers without them',
  clause: 'IBTA annex A17 (RoCEv2): congestion management, rate of the sender',
  sends: `ACKs ${ROUND_TRIP / 1e6} ms late to flows of ${FLOW_PACKETS} packets; then ${FIRST_CNPS} CNPs, and ${ROUND_CNPS} with each ACK`,
  expects: `flows that take more than ${SLOWER} times as long, and within ${RECOVERY / 1e9} s less than halfway to that; reported as flow_time, flow_time_with_cnps, cnp_recovery`,
  known: { ignored: { of: 'rxe', what: 'CNPs are not heeded, so that congestion ends by losses only' } },
  asks: { anyOf: ['WRITE', 'SEND'] },
  async run(service) {
    if (service.peer.isOneByOne) service.notApplicable('it sends one message at a time');
    if (service.peer.isEndless) service.notApplicable('it sends messages that it is not asked for');
    const [before, marked]: [number[], number[]] = [[], []];
    const recovered: number[] = [];
    for (let i = 0; i < FLOWS; i++) {
      const usual = await flowTime(service);
      await notify(service);
      const slow = await flowTime(service, ROUND_CNPS);
      if (slow > SLOWER * usual) {
        const time = await recovery(service, (usual + slow) / 2);
        if (time === undefined) return service.fail(`its rate is still lower ${RECOVERY / 1e9} s later`);
        recovered.push(time);
      }
      before.push(usual);
      marked.push(slow);
    }
    for (const time of before) service.measure('flow_time', time);
    for (const time of marked) service.measure('flow_time_with_cnps', time);
    for (const time of recovered) service.measure('cnp_recovery', time);
    const [quickest, slowest] = [Math.min(...before), Math.max(...before)];
    // each flow with CNPs is slower than each one without
    if (Math.min(...marked) > SLOWER * slowest) return;
    if (slowest > SLOWER * quickest)
      service.notApplicable(
        `flows without CNPs take ${quickest / 1e6} to ${slowest / 1e6} ms: too different to compare`,
      );
    // a busy host may change one pair, or the quickest of each kind, but hardly all of these
    const isSlower = recovered.length >= FLOWS - 1 && Math.min(...marked) > SLOWER * quickest;
    if (!isSlower) service.deviates('ignored', 'CNPs do not lower its rate');
  },
};

/** In the order of their numbers. */
export const CONGESTION_CHECKS: readonly Check[] = [cnp, layout, cnpWithNak, cnpRate];
