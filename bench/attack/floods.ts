/** The frames of each flood, from the encoders of the tests, which share no code with the project. */

import { ipBytes } from '../../src/probe/packet/address.js';
import { CNP, datagram, encodeFrame, flowOf, nak, type Packet } from '../../src/probe/packet/packets.js';
import * as mads from '../../test/cm/mads.js';
import { addressIn, type Family, type Host } from './site.js';
import { CLOSED_PORT, SERVICE_PORT } from './target.js';

/** Whom a flood aims at, and who sends it. */
export interface Victim {
  readonly target: Host;
  readonly honest: Host;
  readonly attacker: Host;
  readonly family: Family;
  /** Queue pair number of the target's flow to the honest server. */
  readonly flowQpn: number;
}

const GSI = { srcQp: 1, destQp: 1 };
const QKEY = 0x80010000;

/** Spreads the bits of a counter, so that frames look random and are the same in every run. */
const mix = (n: number) => Math.imul(n + 1, 0x9e3779b1) >>> 0;

type Source = (victim: Victim, n: number) => { readonly srcIp: string; readonly srcMac: string };

const own: Source = ({ attacker }) => ({ srcIp: attacker.address, srcMac: attacker.mac });
/** Addresses beyond the router; the frames come from its MAC. */
const offLink: Source = ({ attacker, family }, n) => {
  const [b, c, d] = [mix(n) & 15, (mix(n) >>> 8) & 255, 1 + ((mix(n) >>> 16) % 254)];
  return { srcIp: family === 4 ? `172.${16 + b}.${c}.${d}` : `fd01:${b + 1}:${c + 1}::${d}`, srcMac: attacker.mac };
};
/** Addresses of the target's own network that nobody has. */
const absent: Source = ({ attacker, family }, n) => ({
  srcIp: addressIn(family, 100 + (n % 150)),
  srcMac: attacker.mac,
});

function mad(source: Source, bytes: (n: number, from: number[], to: number[]) => Uint8Array) {
  return (victim: Victim, n: number): Uint8Array => {
    const { srcIp, srcMac } = source(victim, n);
    const { target } = victim;
    const there = flowOf({ srcIp, srcMac, dstIp: target.address, dstMac: target.mac, ...GSI });
    const payload = bytes(n, [...ipBytes(srcIp)], [...ipBytes(target.address)]);
    return encodeFrame(there, datagram.sendOnly({ psn: n & 0xffffff, qkey: QKEY, srcQp: 1, payload }));
  };
}

/** The version of IP in the REQ's header of rdma_cm. */
const ipVersion = (address: readonly number[]) => (address.length === 4 ? 0x40 : 0x60);
const ids = (n: number) => ({ tid: BigInt(mix(n)), id: mix(n), remote: mix(n + 1e6) });
const req = (source: Source, port: number) =>
  mad(source, (n, from, to) => {
    const peer = { guid: 0x0200_0000_0000_0000n | BigInt(mix(n)), qpn: 2 + (n & 0xffff) };
    return mads.req({ ...ids(n), ...peer, port, from, to, ipVersion: ipVersion(from) });
  });

/** A packet to the flow's queue pair that claims to come from its peer. */
const forged =
  (packet: (n: number) => Packet) =>
  ({ target, honest, attacker, flowQpn }: Victim, n: number) => {
    const ends = { srcIp: honest.address, srcMac: attacker.mac, dstIp: target.address, dstMac: target.mac };
    return encodeFrame(flowOf({ ...ends, destQp: flowQpn }), packet(n));
  };
const psn = (n: number) => mix(n) & 0xffffff;

/** Frame `n` of each flood. */
export const FLOODS = {
  'REQ, no listener': req(own, CLOSED_PORT),
  'REQ, listener': req(own, SERVICE_PORT),
  'REQ, off-link sources': req(offLink, CLOSED_PORT),
  'REQ, absent neighbours': req(absent, CLOSED_PORT),
  'REQ, absent neighbours, listener': req(absent, SERVICE_PORT),
  REP: mad(own, (n) => mads.rep(ids(n))),
  REJ: mad(own, (n) => mads.rej({ ...ids(n), subject: n % 3, reason: 4 })),
  RTU: mad(own, (n) => mads.rtu(ids(n))),
  DREQ: mad(own, (n) => mads.dreq({ ...ids(n), qpn: n & 0xffffff })),
  SIDR_REQ: mad(own, (n, from, to) =>
    mads.sidrReq({ ...ids(n), port: CLOSED_PORT, from, to, ipVersion: ipVersion(from) }),
  ),
  CNP: forged(() => ({ bth: { opcode: CNP, psn: 0, solicited: false, ackReq: false }, payload: new Uint8Array(16) })),
  NAK: forged((n) => nak.remoteAccess({ psn: psn(n) })),
  RNR: forged((n) => nak.rnr({ psn: psn(n), timer: 31 })),
} satisfies Record<string, (victim: Victim, n: number) => Uint8Array>;

/** Name of a flood. */
export type FloodName = keyof typeof FLOODS;
