/** Checks of VLAN tags. */

import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { dropped, intruder } from './headers.js';
import { REQUESTS } from './responderconversation.js';

const CLAUSE = 'IEEE 802.1Q: priority tags and VLANs; IBTA annex A17 (RoCEv2)';
/** A priority that senders use for RoCE, in the tag control information. */
const PRIORITY = 3;
const PRIORITY_SHIFT = 13;
const VLAN_MASK = 0xfff;
/** Changes a VLAN number into one that the connection does not have. */
const OTHER_VLAN = 0x2a5;

const vlanOf = (tag = 0): number => tag & VLAN_MASK;

const priority: ResponderCheck = {
  number: 11,
  name: 'priority-tag',
  title: 'A tag with a priority only changes nothing: the answer comes in the VLAN of the connection',
  clause: CLAUSE,
  sends: `a request with priority ${PRIORITY} in the VLAN of the connection; without VLAN in a priority tag, whose number is 0`,
  expects: 'an answer in the same VLAN, without VLAN untagged or in a priority tag; answer_priority is its priority',
  counts: ['answer_priority'],
  needs: REQUESTS,
  async run(talk) {
    const own = vlanOf(talk.port.flow.vlan);
    talk.send(talk.request(), { vlan: (PRIORITY << PRIORITY_SHIFT) | own });
    const { eth } = await talk.acked(psnAfter(talk.psn, -1), 'a request with a priority tag');
    talk.measure('answer_priority', (eth.vlan ?? 0) >>> PRIORITY_SHIFT);
    if (vlanOf(eth.vlan) !== own) talk.fail(`the answer comes in VLAN ${vlanOf(eth.vlan)} instead of ${own}`);
  },
};

const foreign: ResponderCheck = {
  number: 11,
  name: 'foreign-vlan',
  title: 'A packet in another VLAN is dropped silently',
  clause: CLAUSE,
  sends: 'a request in a VLAN that the connection does not have',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    const vlan = vlanOf(talk.port.flow.vlan) ^ OTHER_VLAN;
    await dropped(talk, `a request in VLAN ${vlan}`, (psn) => talk.send(intruder(talk, psn), { vlan }));
  },
};

/** In the order of their numbers. */
export const VLAN_CHECKS: readonly ResponderCheck[] = [priority, foreign];
