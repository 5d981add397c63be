/** The headers in front of the BTH: every packet of a connection has those of the address vector. */
import { describe, expect, test } from 'vitest';
import { ack, encodeFrame, type Flow, nak, request, response } from '../../src/probe/packet/packets.js';
import { PING, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';

const V6 = { localIp: [0xfd, ...Array(14).fill(0), 1], remoteIp: [0xfd, ...Array(14).fill(0), 2] };
const FLOW6 = { srcIp: 'fd00::1', dstIp: 'fd00::2' };

describe.each<[string, RcOptions, Partial<Flow>]>([
  ['IPv4', {}, {}],
  ['IPv6', V6, FLOW6],
  ['a VLAN tag', { vlan: 0x6005 }, { vlan: 0x6005 }],
  ['IPv6 behind a VLAN tag', { ...V6, vlan: 0x0fff }, { ...FLOW6, vlan: 0x0fff }],
  ['a traffic class', { trafficClass: 0x68 }, { trafficClass: 0x68 }],
  ['a traffic class of IPv6', { ...V6, trafficClass: 0xab }, { ...FLOW6, trafficClass: 0xab }],
  ['a flow label', { ...V6, flowLabel: 0xfedcb }, { ...FLOW6, flowLabel: 0xfedcb }],
  ['a hop limit', { hopLimit: 3 }, { hopLimit: 3 }],
  ['a hop limit of IPv6', { ...V6, hopLimit: 255 }, { ...FLOW6, hopLimit: 255 }],
  ['a UDP source port', { sourcePort: 0xfade }, { sport: 0xfade }],
])('%s', (_, options, expected) => {
  test('is in requests, ACKs, NAKs and READ responses', async () => {
    const there = expected.srcIp ? { srcIp: 'fd00::2', dstIp: 'fd00::1' } : {};
    const vlan = expected.vlan === undefined ? {} : { vlan: expected.vlan };
    const c = await rc({ ...options, goBackN: true, receives: 1, flow: { ...there, ...vlan } });
    const back: Flow = { ...c.back, ...expected };
    const said = () => c.take().map((bytes) => Buffer.from(bytes).toString('hex'));
    const wanted = (...packets: Parameters<typeof encodeFrame>[1][]) =>
      packets.map((packet) => Buffer.from(encodeFrame(back, packet)).toString('hex'));
    const remote = { va: 0x1000n, rkey: 0x77 };
    c.post(0, { opcode: 'SEND', inline: PING }, { opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 8)], remote });
    expect(said()).toEqual(
      wanted(
        request.sendOnly({ psn: 1000, payload: PING, ackReq: true }),
        request.read({ psn: 1001, ...remote, length: 8, ackReq: true }),
      ),
    );
    c.in(1, send({ psn: 100 }));
    expect(said()).toEqual(wanted(ack({ psn: 100, msn: 1 })));
    c.in(2, send({ psn: 102 })).wc({ wrId: 1 });
    expect(said()).toEqual(wanted(nak.sequence({ psn: 101, msn: 1 })));
    c.in(3, request.read({ psn: 101, va: TARGET_VA, rkey: c.target.rkey, length: 8 }));
    expect(said()).toEqual(wanted(response.readOnly({ psn: 101, msn: 2, payload: c.target.bytes.slice(0, 8) })));
  });
});
