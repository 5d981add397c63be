/**
 * The classic BPF program of a group of sockets (SO_ATTACH_REUSEPORT_CBPF of socket(7)). It runs on the payload of each
 * datagram, which begins with the BTH, and returns the index of the socket that receives it:
 * - bits 16 to 23 of the destination queue pair number are the slot of a program;
 * - messages of the CM to queue pair 1 go by the service id of a request (REQ, SIDR_REQ), and all others by the first
 *   byte of the communication id that the receiver has assigned, which is its slot (IBTA 12.6).
 * A program that takes its packets from an interface itself has a socket for the loopback interface, and for requests
 * of the CM, which others may have to refuse.
 */

/** Sockets of a group by what they receive. All values are indexes in the group. */
export interface Steering {
  /** By slot. */
  readonly slots: ReadonlyMap<number, number>;
  /** Slots of programs that take their packets from the interfaces themselves, except for requests of the CM. */
  readonly onlyLocal: readonly number[];
  /** By service id. */
  readonly services: ReadonlyMap<bigint, number>;
  /** The socket that refuses what is for none of them; undefined: it is dropped. */
  readonly refuses: number | undefined;
}

/** Listeners that the program has room for: the kernel takes 4096 instructions. */
export const MAX_SERVICES = 1500;
/** The socket that drops what it receives. */
export const DROPS = 0;

const LD_W = 0x20;
const LD_H = 0x28;
const LD_B = 0x30;
const AND = 0x54;
const RSH = 0x74;
const TAX = 0x07;
const TXA = 0x87;
const JEQ = 0x15;
const JA = 0x05;
const RET = 0x06;

/** Offsets in the payload: BTH of 12 bytes, DETH of 8, header of the MAD of 24, then the message. */
const DEST_QPN = 4;
const ATTRIBUTE_ID = 36;
const REQUEST_ID = 44;
const REMOTE_COMM_ID = 48;
const SERVICE_ID = 52;

/** Index of the interface that the packet has come by: SKF_AD_OFF + SKF_AD_IFINDEX of linux/filter.h. */
const IFINDEX = 0xfffff008;
/** Of each network namespace (LOOPBACK_IFINDEX). */
const LOOPBACK = 1;

const GSI_QPN = 1;
/** Attribute ids of the CM (IBTA table 160). */
const ATTRIBUTE = { CLASS_PORT_INFO: 0x01, REQ: 0x10, SIDR_REQ: 0x17, SIDR_REP: 0x18 } as const;

type Label = 'gsi' | 'service' | 'sidrRep' | 'bySlot' | 'isLocal' | 'refuse' | `not ${number}`;
type Instruction = readonly [code: number, jt: number, jf: number, k: number | Label];

const load = (code: number, offset: number): Instruction => [code, 0, 0, offset];
const goTo = (label: Label): Instruction => [JA, 0, 0, label];
const give = (index: number): Instruction => [RET, 0, 0, index];
/** If the value is `k`, the next instruction, else the one after it. */
const ifEqual = (k: number): Instruction => [JEQ, 0, 1, k];

/** Returns the program, as `NativePorts.steer` takes it. */
export function steeringProgram({ slots, onlyLocal, services, refuses = DROPS }: Steering): Uint32Array {
  return assemble([
    ...loadQpn,
    ifEqual(GSI_QPN),
    goTo('gsi'),
    [RSH, 0, 0, 16],
    goTo('bySlot'),
    'gsi',
    load(LD_H, ATTRIBUTE_ID),
    ifEqual(ATTRIBUTE.REQ),
    goTo('service'),
    ifEqual(ATTRIBUTE.SIDR_REQ),
    goTo('service'),
    ifEqual(ATTRIBUTE.SIDR_REP),
    goTo('sidrRep'),
    ifEqual(ATTRIBUTE.CLASS_PORT_INFO),
    goTo('refuse'),
    load(LD_B, REMOTE_COMM_ID),
    goTo('bySlot'),
    'service',
    ...byService(services),
    goTo('refuse'),
    'sidrRep',
    load(LD_B, REQUEST_ID),
    'bySlot',
    [TAX, 0, 0, 0],
    load(LD_W, IFINDEX),
    ifEqual(LOOPBACK),
    goTo('isLocal'),
    [TXA, 0, 0, 0],
    ...onlyLocal.flatMap((slot) => [ifEqual(slot), give(DROPS)]),
    'isLocal',
    [TXA, 0, 0, 0],
    ...[...slots].flatMap(([slot, index]) => [ifEqual(slot), give(index)]),
    ...loadQpn,
    ifEqual(GSI_QPN),
    goTo('refuse'),
    give(DROPS),
    'refuse',
    give(refuses),
  ]);
}

const loadQpn: readonly Instruction[] = [load(LD_W, DEST_QPN), [AND, 0, 0, 0xffffff]];

/** Compares the two halves of a service id, and goes on if it is none of them. */
function byService(services: ReadonlyMap<bigint, number>): (Instruction | Label)[] {
  const byHigh = new Map<number, Instruction[]>();
  for (const [id, index] of services) {
    const high = Number(id >> 32n);
    const low = Number(id & 0xffffffffn);
    const byLow = byHigh.get(high) ?? [];
    byLow.push(ifEqual(low), give(index));
    byHigh.set(high, byLow);
  }
  return [...byHigh].flatMap(([high, byLow]) => [
    load(LD_W, SERVICE_ID),
    [JEQ, 1, 0, high] as const,
    goTo(`not ${high}`),
    load(LD_W, SERVICE_ID + 4),
    ...byLow,
    goTo('refuse'),
    `not ${high}` as const,
  ]);
}

function assemble(lines: readonly (Instruction | Label)[]): Uint32Array {
  const labels = new Map<Label, number>();
  const instructions: Instruction[] = [];
  for (const line of lines) {
    if (typeof line === 'string') labels.set(line, instructions.length);
    else instructions.push(line);
  }
  const words = instructions.flatMap(([code, jt, jf, k], at) => [
    (code << 16) | (jt << 8) | jf,
    typeof k === 'number' ? k : (labels.get(k) as number) - at - 1,
  ]);
  return Uint32Array.from(words);
}
