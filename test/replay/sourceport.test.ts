// The UDP source port of connections of Linux (its rule for RoCEv2), by which routers choose among equal-cost paths.
import { expect, test } from 'vitest';
import { decode } from '../../src/probe/packet/decode.js';
import { udpSourcePort } from '../../src/verbs/address/sourceport.js';
import { CAPTURES, roceFrames } from '../kit/fixtures.js';
import { conversations } from './conversation.js';

/** There, the flow label is derived from the ports of rdma_cm. */
const isByCm = (capture: string) => roceFrames(capture).some((frame) => decode(frame).bth.destQp === 1);
/** Flow labels that the programs of some captures had set; packets over IPv4 do not show them. */
const FLOW_LABELS: Readonly<Record<string, number>> = { rxt_flow: 0x12345, rxt_flow_v6: 0x12345 };

test('the source port of the peer is the one that we choose for the pair of queue pairs, or for the flow label', () => {
  const found = CAPTURES.filter((capture) => !isByCm(capture)).flatMap(conversations);
  expect(found.length).toBeGreaterThan(60);
  for (const { capture, requester, responder, packets } of found)
    for (const { isRequest, frame } of packets)
      if (isRequest)
        expect(frame.udp.sport, capture).toBe(udpSourcePort(FLOW_LABELS[capture] ?? 0, requester, responder));
});
