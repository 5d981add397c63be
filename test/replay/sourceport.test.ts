// The UDP source port of connections that Linux has made (its rule for RoCEv2), by which equal-cost paths are chosen.
import { expect, test } from 'vitest';
import { udpSourcePort } from '../../src/verbs/ah.js';
import { decode } from '../kit/decode.js';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';
import { conversations } from './conversation.js';

/** There the flow label is made from the ports of rdma_cm. */
const isByCm = (capture: string) => roceFrames(capture).some((frame) => decode(frame).bth.destQp === 1);
/** What the programs of some captures had set; over IPv4 the wire does not show it. */
const FLOW_LABELS: Readonly<Record<string, number>> = { rxt_flow: 0x12345, rxt_flow_v6: 0x12345 };

test('is what we would take for the same pair of queue pairs, or for the flow label', () => {
  const found = CAPTURES.filter((capture) => !isByCm(capture)).flatMap(conversations);
  expect(found.length).toBeGreaterThan(60);
  for (const { capture, requester, responder, packets } of found)
    for (const { isRequest, frame } of packets)
      if (isRequest)
        expect(frame.udp.sport, capture).toBe(udpSourcePort(FLOW_LABELS[capture] ?? 0, requester, responder));
});
