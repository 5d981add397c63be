/** Rules that every packet of a peer has to follow, and the checks that do nothing but report them. */
import type { Decoded } from '../packet/frame.js';
import { numberHex } from '../packet/hex.js';
import { GSI_QKEY, MAD_BYTES } from '../packet/mad.js';
import { CNP, OPCODES, Op, UD_SEND_ONLY } from '../packet/opcodes.js';
import type { PacketPort } from '../script/port.js';
import type { RuleCheck } from './check.js';
import type { Breach, Judge, PacketRule } from './checkbase.js';

/** Classes of opcodes: RC, UC, XRC. They have messages of several packets. */
const CONNECTED: readonly number[] = [0, 1, 5];
/** Queue pair number of management datagrams. */
const GSI = 1;
/** ECN: congestion experienced. */
const MARKED = 3;
/** Flags and fragment offset of a packet that is not to be fragmented, and is none. */
const DF = 0x4000;
/** Partition keys are compared without the bit that tells full members. */
const PARTITION = 0x7fff;
const IP4_HEADER = 20;

const breach = (text: string, known?: string): Breach => ({ text, ...(known !== undefined && { known }) });

/** Returns a judge that keeps nothing. */
const each = (judge: Judge) => () => judge;

/** Returns a judge that keeps something of each connection. */
function perConnection<State>(start: () => State, judge: (state: State, packet: Decoded) => ReturnType<Judge>) {
  return (): Judge => {
    const states = new WeakMap<PacketPort, State>();
    return (packet, port) => {
      const state = states.get(port) ?? start();
      states.set(port, state);
      return judge(state, packet);
    };
  };
}

/** Whether a packet answers a request. */
const isResponse = ({ aeth, bth }: Decoded): boolean =>
  aeth !== undefined || (bth.opcode & 31) === Op.RDMA_READ_RESPONSE_MIDDLE;

/** IBTA annex A17: the receiver drops a packet whose ICRC is wrong. */
export const ICRC: PacketRule = {
  broken: 'have a wrong ICRC',
  isDropped: true,
  judge: each(({ bth, icrc, icrcExpected, icrcOk }) => {
    if (icrcOk) return 'fine';
    return breach(`${numberHex(icrc)} instead of ${numberHex(icrcExpected)}`, bth.pad > 0 ? 'pad' : undefined);
  }),
};

/** IBTA chapter 17: MigReq tells the state of path migration, which does not change from packet to packet. */
export const MIG_REQ: PacketRule = {
  broken: 'have MigReq 0, or another one than those before them',
  judge: perConnection(
    () => new Map<boolean, boolean>(),
    (state, packet) => {
      const { migReq, opcode } = packet.bth;
      if (opcode === CNP || opcode === UD_SEND_ONLY) return undefined;
      const kind = isResponse(packet);
      const before = state.get(kind);
      state.set(kind, migReq);
      if (before !== undefined && before !== migReq) return breach(`MigReq changes to ${migReq ? 1 : 0}`);
      return migReq ? 'fine' : breach('MigReq is 0', 'zero');
    },
  ),
};

/** IBTA annex A17: IPv4 packets have DF set. */
export const DO_NOT_FRAGMENT: PacketRule = {
  broken: 'have other flags or another fragment offset than 0x4000 (DF)',
  judge: each(({ ip }) => {
    if (ip.version === 6) return undefined;
    return ip.fragment === DF ? 'fine' : breach(numberHex(ip.fragment));
  }),
};

/** RFC 3168: senders send ECT or Not-ECT; CE is set by switches. */
export const NOT_MARKED: PacketRule = {
  broken: 'have congestion experienced (ECN 3), by the peer or by a switch of the path',
  judge: each(({ ip }) => {
    const own = (ip.version === 4 ? ip.tos : ip.trafficClass) & 3;
    return own === MARKED ? breach(`the ${ip.version === 4 ? 'TOS' : 'traffic class'} ends in 3`) : 'fine';
  }),
};

const reserved: RuleCheck = {
  number: 3,
  name: 'reserved-zero',
  title: 'The peer sets no reserved bit of the headers',
  clause: 'IBTA volume 1, chapter 9: base transport header, AETH, DETH, reserved fields',
  sends: 'nothing',
  expects: 'zeroes in the reserved bits of every packet',
  rule: {
    broken: 'have reserved bits',
    judge: each(({ aeth, bth, deth }) => {
      if (bth.reserved6 !== 0) return breach(`byte 4 of the BTH has ${numberHex(bth.reserved6)}`);
      if (bth.reserved7 !== 0) return breach(`byte 8 of the BTH has ${numberHex(bth.reserved7)}`);
      if ((deth?.reserved8 ?? 0) !== 0) return breach(`byte 4 of the DETH has ${numberHex(deth?.reserved8 ?? 0)}`);
      if (((aeth?.syndrome ?? 0) & 0x80) !== 0) return breach(`the syndrome is ${numberHex(aeth?.syndrome ?? 0)}`);
      return 'fine';
    }),
  },
};

const onePort: RuleCheck = {
  number: 6,
  name: 'one-source-port',
  title: 'The peer sends the packets of a connection from one UDP source port',
  clause: 'IBTA annex A17 (RoCEv2): UDP header, source port; switches choose the path by it',
  sends: 'nothing',
  expects: 'one port for the requests of a connection, and one for its responses; CNPs may have another',
  rule: {
    broken: 'come from another UDP source port than those before, so that switches may reorder them',
    judge: perConnection(
      () => new Map<boolean, number>(),
      (ports, packet) => {
        const { opcode, destQp } = packet.bth;
        if (opcode === CNP || destQp <= GSI) return undefined;
        const kind = isResponse(packet);
        const before = ports.get(kind) ?? packet.udp.sport;
        ports.set(kind, packet.udp.sport);
        return before === packet.udp.sport ? 'fine' : breach(`${packet.udp.sport} after ${before}`);
      },
    ),
  },
};

const valid: RuleCheck = {
  number: 9,
  name: 'valid-headers',
  title: 'Every packet of the peer has valid headers: version 0, a known opcode, lengths that agree, its address',
  clause: 'IBTA volume 1, chapter 9: packet validation; RFC 768, RFC 791',
  sends: 'nothing',
  expects: 'that every receiver takes every packet',
  rule: {
    broken: 'are dropped by every receiver',
    isDropped: true,
    judge: each(({ bth, ip, udp }, { flow }) => {
      if (bth.version !== 0) return breach(`the transport version is ${bth.version}`);
      if (!OPCODES.has(bth.opcode) && bth.opcode !== CNP) return breach(`the opcode is ${numberHex(bth.opcode)}`);
      const bytes = ip.version === 4 ? (ip.totalLength ?? 0) - IP4_HEADER : (ip.payloadLength ?? 0);
      if (udp.length !== bytes) return breach(`the UDP header says ${udp.length} bytes, the IP header ${bytes}`);
      if (ip.src !== flow.dstIp) return breach(`it comes from ${ip.src} instead of ${flow.dstIp}`);
      return 'fine';
    }),
  },
};

const partition: RuleCheck = {
  number: 10,
  name: 'own-partition',
  title: 'Every packet of the peer has the partition key of its connection',
  clause: 'IBTA volume 1, chapter 9: packet validation, partition key',
  sends: 'nothing',
  expects: 'the key of our packets, but for the bit that tells full members',
  rule: {
    broken: 'have another partition key',
    isDropped: true,
    judge: each(({ bth: { pkey } }, { flow }) =>
      (pkey & PARTITION) === (flow.pkey & PARTITION)
        ? 'fine'
        : breach(`${numberHex(pkey)} instead of ${numberHex(flow.pkey)}`),
    ),
  },
};

const lengths: RuleCheck = {
  number: 34,
  name: 'packet-lengths',
  title: 'Packets of the peer have the payload that their opcode says',
  clause: 'IBTA volume 1, chapter 9: payload length of first, middle, last and only packets',
  sends: 'nothing',
  expects: 'full first and middle packets, a byte or more in last ones, no more than the path MTU, no payload of ACKs',
  rule: {
    broken: 'have a payload of another length',
    judge: each(({ bth, payload }, { mtu }) => {
      const row = OPCODES.get(bth.opcode);
      if (row === undefined || !CONNECTED.includes(bth.opcode >>> 5)) return undefined;
      const told = `${row.name} with ${payload.length} bytes, the path MTU is ${mtu}`;
      if (/FIRST|MIDDLE/.test(row.name)) return payload.length === mtu ? 'fine' : breach(told);
      if (/LAST/.test(row.name)) return payload.length > 0 && payload.length <= mtu ? 'fine' : breach(told);
      if (/SEND_ONLY|WRITE_ONLY|RESPONSE_ONLY/.test(row.name)) return payload.length <= mtu ? 'fine' : breach(told);
      if (/ATOMIC_WRITE/.test(row.name)) return undefined;
      return payload.length === 0 ? 'fine' : breach(`${row.name} with ${payload.length} bytes of payload`);
    }),
  },
};

const mads: RuleCheck = {
  number: 46,
  name: 'mad-format',
  title: 'Management datagrams of the peer have 256 bytes, and the queue key of queue pair 1',
  clause: 'IBTA volume 1, chapter 13: MAD format; 3.9.4: general services interface',
  sends: 'nothing',
  expects: 'UD SEND_ONLY of 256 bytes with the queue key 0x80010000',
  rule: {
    broken: 'are dropped by every manager',
    isDropped: true,
    judge: each(({ bth, deth, payload }) => {
      if (bth.destQp !== GSI) return undefined;
      if (bth.opcode !== UD_SEND_ONLY) return breach(`the opcode is ${numberHex(bth.opcode)}`);
      if (deth?.qkey !== GSI_QKEY) return breach(`the queue key is ${numberHex(deth?.qkey ?? 0)}`);
      return payload.length === MAD_BYTES ? 'fine' : breach(`it has ${payload.length} bytes`);
    }),
  },
};

/** Rules of a run, which knows when no more packets come, and which come only when requests are repeated. */
export const ANSWERS: PacketRule = { broken: 'do not come', judge: each(() => 'fine') };
export const AT_ONCE: PacketRule = { broken: 'come late', judge: each(() => 'fine') };

const answers: RuleCheck = {
  number: 57,
  name: 'answers-to-the-end',
  title: 'The peer answers until the last check',
  clause: 'none: no packet may end the peer',
  sends: 'a new connection after a check in which no packet of the peer came',
  expects: 'that it is made, as those before were',
  rule: ANSWERS,
};

/** Checks that send nothing, in the order of their numbers. */
export const RULE_CHECKS: readonly RuleCheck[] = [reserved, onePort, valid, partition, lengths, mads, answers];
