/** Shared by the tests of memory windows: a region over the conversation's target, and windows on it. */
import { expect } from 'vitest';
import { nak, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, TARGET_VA } from '../kit/conversation.js';
import type { Region, SendRequest } from '../kit/rig.js';

export const [LOCAL_WRITE, WRITE, READ, ATOMIC, MW_BIND, ZERO_BASED, FLUSH_GLOBAL] = [1, 2, 4, 8, 16, 32, 256] as const;
export const INVALIDATE = 1 << 24;
export const LENGTH = 8192;
/** Start of the window in its region, and its size. */
export const [AT, SIZE] = [1024, 2048];

/** The same key with the next tag. */
export const next = (rkey: number): number => ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;

export const region = (c: Conversation, access = 15 | MW_BIND | FLUSH_GLOBAL): Region =>
  c.rig.regionAt(c.target.ptr, LENGTH, access, TARGET_VA);

export interface Bound {
  readonly mw: number;
  readonly rkey: number;
  readonly mr: Region;
}

/** A request that binds a window, with the test's changes. */
export function binding(
  c: Conversation,
  mw: number,
  mr: Region,
  change: Partial<SendRequest['bind'] & object> = {},
): SendRequest {
  const rkey = next(c.rig.x.mrRkey(mw));
  const bind = { rkey, lkey: mr.lkey, va: TARGET_VA + BigInt(AT), length: SIZE, access: WRITE | READ, ...change };
  return { wrId: 90, opcode: 'BIND_MW', bind };
}

/** A bound window. */
export function bound(c: Conversation, type: 1 | 2, change: Partial<SendRequest['bind'] & object> = {}): Bound {
  const [mw, mr] = [c.rig.window(type), region(c)];
  const wr = binding(c, mw, mr, change);
  c.post(0, wr).silent().wc({ wrId: 90, opcode: 'BIND_MW' });
  expect(c.rig.x.mrRkey(mw)).toBe(wr.bind?.rkey);
  return { mw, rkey: c.rig.x.mrRkey(mw), mr };
}

/** The peer's request is rejected, and an event is raised. */
export function refused(c: Conversation, packet: Packet): void {
  const before = c.target.bytes.slice();
  c.in(1, packet)
    .out(nak.remoteAccess({ psn: 100 }))
    .state('ERR')
    .events('QP_ACCESS_ERR')
    .holds(c.target, 0, before);
}

export const write = (va: bigint, rkey: number, payload: Uint8Array = PING): Packet =>
  request.writeOnly({ psn: 100, va, rkey, payload, ackReq: true });
