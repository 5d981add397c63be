/** The answers of queue pair 1 to the management of its class: ClassPortInfo (IBTA 13.4.8.1, 16.7.3.1). */
import { expect, test } from 'vitest';
import { Conversation } from './conversation.js';
import * as mads from './mads.js';

const GET = 1;
const SET = 2;
const TID = 0x0102_0304_0506_0708n;

/** A MAD of the class with a method and an attribute. */
function mad(method: number, attribute: number, damage: (bytes: Uint8Array) => void = () => {}): Uint8Array {
  const { bytes } = new mads.Mad(attribute, TID);
  bytes[3] = method;
  new DataView(bytes.buffer).setUint32(20, 0x0a0b0c0d);
  // the requester may leave anything in the data
  bytes.fill(0xee, 24);
  damage(bytes);
  return bytes;
}

/** Gives the core a datagram; returns what it sends, as bytes. */
function ask(bytes: Uint8Array, talk = new Conversation()): Uint8Array[] {
  const neighbour = { mac: new Uint8Array(6), vlanTci: undefined };
  talk.core.receive(bytes, { local: mads.OUR_ADDRESS, remote: mads.PEER_ADDRESS, neighbour, pkeyIndex: 3 }, talk.now);
  const sent = talk.core.takeMessages();
  for (const outgoing of sent)
    expect(outgoing).toMatchObject({ local: mads.OUR_ADDRESS, remote: mads.PEER_ADDRESS, neighbour, pkeyIndex: 3 });
  return sent.map((outgoing) => outgoing.bytes);
}

const statusOf = (bytes: Uint8Array | undefined) => bytes && (bytes[4] as number) * 256 + (bytes[5] as number);

test('Get of ClassPortInfo is answered, byte by byte', () => {
  const [reply, ...others] = ask(mad(GET, 1));
  expect(others).toEqual([]);
  const expected = new Uint8Array(256);
  // base version, class, class version, GetResp, status, class specific
  expected.set([1, 7, 2, 0x81, 0, 0, 0, 0]);
  expected.set([1, 2, 3, 4, 5, 6, 7, 8], 8);
  expected.set([0, 1, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d], 16);
  // base version 1, class version 2, capabilities RC, UC and SIDR, no CapabilityMask2, 4.3 s; no redirection, no traps
  expected.set([1, 2, 0x32, 0x00, 0, 0, 0, 20], 24);
  expect(reply).toEqual(expected);
});

test.each([
  ['Set of ClassPortInfo', mad(SET, 1), 0x0c],
  ['Get of a message', mad(GET, 0x10), 0x0c],
  ['Get of an unknown attribute', mad(GET, 0x99), 0x0c],
  ['another class version', mad(GET, 1, (bytes) => bytes.fill(1, 2, 3)), 0x04],
] as const)('an unsupported request gets an answer with a status: %s', (_, bytes, status) => {
  const [reply] = ask(bytes);
  expect(statusOf(reply)).toBe(status);
  expect([...(reply ?? new Uint8Array(0)).subarray(0, 4)]).toEqual([1, 7, 2, 0x81]);
  expect(reply?.subarray(8, 24)).toEqual(bytes.subarray(8, 24));
  expect(reply?.subarray(24).every((byte) => byte === 0)).toBe(true);
});

test.each([
  ['a response', mad(0x81, 1)],
  ['an unknown method', mad(0x05, 1)],
  ['another class', mad(GET, 1, (bytes) => bytes.fill(4, 1, 2))],
  ['another base version', mad(GET, 1, (bytes) => bytes.fill(2, 0, 1))],
  ['a short one', mad(GET, 1).subarray(0, 255)],
] as const)('no answer is sent to %s', (_, bytes) => {
  expect(ask(bytes)).toEqual([]);
});

test('a request and its answer are counted, and the core keeps nothing of them', () => {
  const talk = new Conversation();
  for (let i = 0; i < 1000; i++) ask(mad(GET, 1), talk);
  ask(mad(0x81, 1), talk);
  expect(talk.core.counters()).toEqual({ 'cm_rx_msgs.get': 1000, 'cm_tx_msgs.get_resp': 1000, cm_drop_method: 1 });
  expect([talk.core.size, talk.core.nextDeadline()]).toEqual([0, Number.POSITIVE_INFINITY]);
});
