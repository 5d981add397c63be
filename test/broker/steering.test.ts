// The classic BPF program that chooses a socket, run by an interpreter of the instructions that it uses.
import { describe, expect, test } from 'vitest';
import { MAX_SERVICES, type Steering, steeringProgram } from '../../src/broker/steering.js';

const LOOPBACK = 1;
const ETHERNET = 2;
/** SKF_AD_OFF + SKF_AD_IFINDEX. */
const IFINDEX = 0xfffff008;

/** Returns what the program returns for a payload; 0 when it reads beyond the end, as the kernel. */
function run(program: Uint32Array, payload: Buffer, ifindex = ETHERNET): number {
  let a = 0;
  let x = 0;
  for (let at = 0; ; at++) {
    const head = program[2 * at] as number;
    const k = program[2 * at + 1] as number;
    const size = { 32: 4, 40: 2, 48: 1 }[head >>> 16];
    if (size !== undefined) {
      if (k !== IFINDEX && k + size > payload.length) return 0;
      a = k === IFINDEX ? ifindex : payload.readUIntBE(k, size);
      continue;
    }
    switch (head >>> 16) {
      case 0x54:
        a = (a & k) >>> 0;
        break;
      case 0x74:
        a >>>= k;
        break;
      case 0x15:
        at += a === k ? (head >>> 8) & 0xff : head & 0xff;
        break;
      case 0x05:
        at += k;
        break;
      case 0x07:
        x = a;
        break;
      case 0x87:
        a = x;
        break;
      case 0x06:
        return k;
      default:
        throw new Error(`code ${head >>> 16}`);
    }
  }
}

const data = (qpn: number, bytes = 64) => {
  const payload = Buffer.alloc(bytes);
  payload[0] = 4;
  payload.writeUInt32BE(0x80000000 + qpn, 4);
  return payload;
};

const mad = (attribute: number, fields: { commId?: number; requestId?: number; service?: bigint }) => {
  const payload = data(1, 280);
  payload.writeUInt16BE(attribute, 36);
  payload.writeUInt32BE(fields.requestId ?? 0, 44);
  payload.writeUInt32BE(fields.commId ?? 0, 48);
  payload.writeBigUInt64BE(fields.service ?? 0n, 52);
  return payload;
};

const REQ = 0x10;
const SIDR_REQ = 0x17;
const SIDR_REP = 0x18;
/** MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR. */
const ANSWERS = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x19, 0x1a];

const STEERING: Steering = {
  slots: new Map([
    [3, 1],
    [200, 2],
    [255, 3],
  ]),
  onlyLocal: [],
  services: new Map([
    [0x1061d2fn, 2],
    [0x1061d30n, 3],
    [0x1111d2fn, 1],
    [0xabcdef0101061d2fn, 3],
  ]),
  refuses: 1,
};

describe('a steering program', () => {
  const program = steeringProgram(STEERING);

  test.each([
    ['the lowest number of a slot', 3 << 16, 1],
    ['another number of it', (200 << 16) | 0xbeef, 2],
    ['the highest slot', (255 << 16) | 1, 3],
    ['a slot that nobody has', 4 << 16, 0],
    ['a queue pair of a device without a broker', 0x1234, 0],
  ])('gives packets to the program of their queue pair: %s', (_name, qpn, index) => {
    expect(run(program, data(qpn))).toBe(index);
  });

  test.each([REQ, SIDR_REQ])('gives requests (attribute %i) to the listener of their service', (attribute) => {
    const indexes = [...STEERING.services].map(([service]) => run(program, mad(attribute, { service })));
    expect(indexes).toEqual([...STEERING.services.values()]);
    expect(run(program, mad(attribute, { service: 0x1061d31n, commId: 0xff000000 }))).toBe(STEERING.refuses);
    expect(run(program, mad(attribute, { service: 0x101061d2fn }))).toBe(STEERING.refuses);
  });

  test('gives answers to the program whose slot the communication id begins with', () => {
    for (const attribute of ANSWERS) {
      expect(run(program, mad(attribute, { commId: 0xc8123456, requestId: 0x03000000 }))).toBe(2);
      expect(run(program, mad(attribute, { commId: 0x05123456 }))).toBe(STEERING.refuses);
    }
    expect(run(program, mad(SIDR_REP, { commId: 0xc8123456, requestId: 0x03000000 }))).toBe(1);
  });

  test('drops what is too short, and what nobody refuses', () => {
    for (const bytes of [0, 3, 7]) expect(run(program, data(3 << 16, 64).subarray(0, bytes))).toBe(0);
    expect(run(program, mad(REQ, {}).subarray(0, 40))).toBe(0);
    const none = steeringProgram({ ...STEERING, services: new Map(), refuses: undefined });
    expect(run(none, mad(REQ, { service: 0x1061d2fn }))).toBe(0);
    expect(run(none, mad(0x14, { commId: 0x05123456 }))).toBe(0);
  });

  test('gives a program with interfaces of its own what has come by loopback, and requests alone from elsewhere', () => {
    const mixed = steeringProgram({ ...STEERING, onlyLocal: [3, 255] });
    const indexOf = (payload: Buffer) => [LOOPBACK, ETHERNET].map((ifindex) => run(mixed, payload, ifindex));
    expect(indexOf(data(3 << 16))).toEqual([1, 0]);
    expect(indexOf(data(200 << 16))).toEqual([2, 2]);
    expect(indexOf(data(255 << 16))).toEqual([3, 0]);
    expect(indexOf(data(4 << 16))).toEqual([0, 0]);
    for (const attribute of ANSWERS) expect(indexOf(mad(attribute, { commId: 0xff000001 }))).toEqual([3, 0]);
    expect(indexOf(mad(SIDR_REP, { requestId: 0x03000000 }))).toEqual([1, 0]);
    expect(indexOf(mad(ANSWERS[0] as number, { commId: 0x05000001 }))).toEqual([1, 1]);
    expect(indexOf(mad(REQ, { service: 0x1061d30n }))).toEqual([3, 3]);
    expect(indexOf(mad(SIDR_REQ, { service: 0x1111d2fn }))).toEqual([1, 1]);
    expect(indexOf(mad(REQ, { service: 0x1061d31n }))).toEqual([1, 1]);
  });

  test('has at most 4096 instructions with all slots and all services', () => {
    const slots = new Map(Array.from({ length: 255 }, (_, i) => [i + 1, i + 1]));
    const onlyLocal = [...slots.keys()];
    const services = new Map(Array.from({ length: MAX_SERVICES }, (_, i) => [0x1060000n + BigInt(i), (i % 255) + 1]));
    const full = steeringProgram({ slots, onlyLocal, services, refuses: 7 });
    expect(full.length / 2).toBeLessThanOrEqual(4096);
    expect(run(full, mad(REQ, { service: 0x1060000n + BigInt(MAX_SERVICES - 1) }))).toBe(
      ((MAX_SERVICES - 1) % 255) + 1,
    );
    expect(run(full, data(0xff1234), LOOPBACK)).toBe(255);
  });
});
