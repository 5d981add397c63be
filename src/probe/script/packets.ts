/** Packets of a script: the frames that a `>` line sends, and whether a received frame matches a `<` line. */

import type { Decoded, Extensions } from '../packet/frame.js';
import { Op } from '../packet/opcodes.js';
import { CNP, type Flow, frameOf, OPCODES, type Packet, request, response, UC } from '../packet/packets.js';
import type { Field, PacketSpec, SourcePosition } from './ast.js';
import { type Draft, FIELDS, type FieldRule } from './fields.js';
import { Duration, type Evaluator, kindOf, type PacketRecord, type Value } from './values.js';

/** An operation of scripts. */
interface Operation {
  readonly opcode: number;
  /** The class of an AETH's syndrome (bits 5 to 7), where the operation determines it. */
  readonly syndromeClass?: number;
}

/** Whole messages, which become as many packets as the path MTU makes of them. */
export const MESSAGES = ['SEND', 'WRITE', 'READ_RESPONSE', 'UC.SEND', 'UC.WRITE'] as const;
type Message = (typeof MESSAGES)[number];

/** Operations by the names that scripts use: without RDMA_, with the class in front for other classes than RC. */
export const OPERATIONS: ReadonlyMap<string, Operation> = new Map<string, Operation>([
  ...Array.from(OPCODES, ([opcode, { name }]): [string, Operation] => {
    const [first = '', second] = name.split(' ');
    const short = (second ?? first).replace(/^RDMA_/, '').replace(/^ATOMIC_ACKNOWLEDGE$/, 'ATOMIC_ACK');
    return [second === undefined || first === 'RC' ? short : `${first}.${short}`, { opcode }];
  }),
  ['ACK', { opcode: Op.ACKNOWLEDGE, syndromeClass: 0 }],
  ['RNR_NAK', { opcode: Op.ACKNOWLEDGE, syndromeClass: 1 }],
  ['NAK', { opcode: Op.ACKNOWLEDGE, syndromeClass: 3 }],
]);

export const isMessage = (name: string): name is Message => (MESSAGES as readonly string[]).includes(name);

/** Returns the operation of a received packet as scripts name it. */
export function operationOf({ bth, aeth }: Decoded): string {
  for (const [name, { opcode, syndromeClass }] of OPERATIONS)
    if (
      opcode === bth.opcode &&
      name !== 'ACKNOWLEDGE' &&
      (syndromeClass ?? 0) === (opcode === Op.ACKNOWLEDGE ? (aeth?.syndrome ?? 0) >>> 5 : 0)
    )
      return name;
  return bth.opcode === Op.ACKNOWLEDGE ? 'ACKNOWLEDGE' : `RAW opcode=0x${bth.opcode.toString(16)}`;
}

/** Makes a packet's fields readable by expressions. */
export function record(frame: Decoded, time: Duration): PacketRecord {
  return { time, field: (name) => rule(name).read(frame) };
}

/** @throws RangeError for a name that no packet has */
function rule(name: string): FieldRule {
  const found = FIELDS.get(name);
  if (found === undefined) throw new RangeError(`no field ${name}`);
  return found;
}

function ruleOf(field: Field, evaluator: Evaluator): FieldRule {
  return FIELDS.get(field.name) ?? evaluator.fail(field, unknownField(field.name));
}

/** The connection, as the sender of a script's packets knows it. */
export interface Sender {
  readonly flow: Flow;
  /** Path MTU in bytes. */
  readonly mtu: number;
}

/** The values of a packet that scripts give by variables, where its line does not: psn, msn, va, rkey. */
function variable(evaluator: Evaluator, name: string): number {
  const value = evaluator.variables.get(name);
  return typeof value === 'bigint' ? Number(BigInt.asUintN(32, value)) : 0;
}

/** Returns the frames of a `>` line. */
export function buildFrames(spec: PacketSpec, evaluator: Evaluator, sender: Sender): Draft[] {
  const { operation } = spec;
  if (isMessage(operation)) return message(operation, spec, evaluator, sender);
  const found = OPERATIONS.get(operation) ?? (operation === 'RAW' ? { opcode: 0 } : undefined);
  if (found === undefined) return evaluator.fail(spec, unknownOperation(operation));
  const payload = payloadOf(spec, evaluator);
  const packet: Packet = {
    bth: { opcode: found.opcode, psn: variable(evaluator, 'psn'), ackReq: false, solicited: false },
    ...extensions(found, evaluator, payload ?? new Uint8Array(0)),
    payload: payload ?? new Uint8Array(0),
  };
  need(spec, evaluator, found.opcode);
  return [finish(draftOf(sender.flow, packet), spec.fields, evaluator)];
}

/** Returns the message for an operation that does not exist. */
export const unknownOperation = (operation: string, more: readonly string[] = [...MESSAGES, 'RAW']) =>
  `no operation ${operation}; operations are ${[...OPERATIONS.keys(), ...more].join(', ')}`;

/** Returns the message for a field that does not exist. */
export const unknownField = (name: string) => `no field ${name}; fields are ${[...FIELDS.keys()].join(', ')}`;

/** Fields without which a packet has no meaning, by opcode. */
const NEEDED: Readonly<Partial<Record<number, string>>> = {
  [Op.RDMA_WRITE_FIRST]: 'length',
  [Op.RDMA_WRITE_FIRST + UC]: 'length',
  [Op.RDMA_READ_REQUEST]: 'length',
  [Op.FLUSH]: 'length',
  [Op.ACKNOWLEDGE]: 'psn',
  [Op.ATOMIC_ACKNOWLEDGE]: 'psn',
  [Op.RDMA_READ_RESPONSE_FIRST]: 'psn',
  [Op.RDMA_READ_RESPONSE_MIDDLE]: 'psn',
  [Op.RDMA_READ_RESPONSE_LAST]: 'psn',
  [Op.RDMA_READ_RESPONSE_ONLY]: 'psn',
};

function need({ operation, fields, ...place }: PacketSpec, evaluator: Evaluator, opcode: number): void {
  const needed = NEEDED[opcode];
  if (needed !== undefined && !fields.some(({ name }) => name === needed))
    evaluator.fail(place, `${operation} needs the field ${needed}`);
}

/** The headers of an opcode, with the values that follow from the connection. */
function extensions({ opcode, syndromeClass = 0 }: Operation, evaluator: Evaluator, payload: Uint8Array): Extensions {
  const headers = OPCODES.get(opcode)?.headers ?? [];
  const va = evaluator.variables.get('va');
  const at = { va: typeof va === 'bigint' ? va : 0n, rkey: variable(evaluator, 'rkey') };
  const length = opcode === Op.ATOMIC_WRITE ? 8 : payload.length;
  // an ACK gives no credits by default
  const syndrome = (syndromeClass << 5) | (syndromeClass === 0 ? 31 : 0);
  const all: Required<Extensions> = {
    deth: { qkey: variable(evaluator, 'qkey'), srcQp: variable(evaluator, 'qp') },
    feth: { placement: 1, selectivity: 0 },
    reth: { ...at, length },
    atomiceth: { ...at, swapAdd: 0n, compare: 0n },
    aeth: { syndrome, msn: variable(evaluator, 'msn') },
    immdt: 0,
    ieth: 0,
    atomicack: 0n,
  };
  return Object.fromEntries(headers.map((name) => [name, all[name]]));
}

function payloadOf({ fields }: PacketSpec, evaluator: Evaluator): Uint8Array | undefined {
  const field = fields.find(({ name }) => name === 'payload');
  if (field === undefined) return undefined;
  const value = fieldValue(field, evaluator);
  return value instanceof Uint8Array ? value : evaluator.fail(field, `payload needs bytes, found ${kindOf(value)}`);
}

/** Returns the value that a `>` line gives a field. */
function fieldValue(field: Field, evaluator: Evaluator): Value {
  const { value, name, negated } = field;
  if (value.kind === 'flag') return negated ? 0n : 1n;
  if (value.kind === 'is') return evaluator.value(value.value);
  return evaluator.fail(field, `a packet that is sent needs one value: ${name}=value`);
}

function draftOf(flow: Flow, packet: Packet): Draft {
  return structuredClone(frameOf(flow, packet));
}

/** Writes the fields of a line into a frame. */
function finish(frame: Draft, fields: readonly Field[], evaluator: Evaluator): Draft {
  for (const field of fields) {
    if (field.name === 'payload') continue;
    const { bits, type, write } = ruleOf(field, evaluator);
    const value = fieldValue(field, evaluator);
    if (field.name === 'icrcok') breakIcrc(frame, value, field, evaluator);
    else if (field.value.kind === 'flag' && bits !== 1) evaluator.fail(field, `${field.name} needs a value`);
    else if (!fits(value, type)) evaluator.fail(field, `${field.name} needs ${wanted(type)}, found ${kindOf(value)}`);
    else if (!write(frame, value as never)) evaluator.fail(field, `this packet has no field ${field.name}`);
  }
  return frame;
}

/** `icrcok=0` makes the ICRC wrong; the encoder makes a right one without it. */
function breakIcrc(frame: Draft, value: Value, place: SourcePosition, evaluator: Evaluator): void {
  if (value === 1n) return;
  if (value !== 0n) evaluator.fail(place, 'icrcok must be 0 or 1');
  frame.breaksIcrc = true;
}

/** Returns what a field of a type needs, for messages. */
export const wanted = (type: FieldRule['type']) =>
  type === undefined ? 'a number' : type === 'bytes' ? 'bytes' : 'a text in quotes';
/** Returns whether a value is of a field's type. */
export const fits = (value: Value, type: FieldRule['type']): boolean =>
  type === undefined
    ? typeof value === 'bigint'
    : type === 'bytes'
      ? value instanceof Uint8Array
      : typeof value === 'string';

/** Fields that belong to the last packet of a message, and those that only its first packet has. */
const OF_LAST = ['ackreq', 'solicited', 'imm', 'invalidate'];
const OF_FIRST = ['va', 'rkey', 'length'];

/** Returns the packets of a whole message. */
function message(operation: Message, spec: PacketSpec, evaluator: Evaluator, { flow, mtu }: Sender): Draft[] {
  const payload = payloadOf(spec, evaluator);
  if (payload === undefined) return evaluator.fail(spec, `${operation} needs the field payload`);
  const given = (name: string): number | undefined => {
    const field = spec.fields.find((each) => each.name === name);
    if (field === undefined) return undefined;
    const value = fieldValue(field, evaluator);
    return typeof value === 'bigint'
      ? Number(BigInt.asUintN(32, value))
      : evaluator.fail(field, `${name} needs a number`);
  };
  const [imm, invalidate] = [given('imm'), given('invalidate')];
  const psn = given('psn') ?? variable(evaluator, 'psn');
  const end = { ackReq: given('ackreq') === 1, solicited: given('solicited') === 1 };
  const base = { psn: psn & 0xffffff, payload, mtu, ...end, ...(imm === undefined ? {} : { imm }) };
  const packets =
    operation === 'READ_RESPONSE'
      ? response.read({ ...base, msn: given('msn') ?? variable(evaluator, 'msn') })
      : operation.endsWith('WRITE')
        ? request.write({
            ...base,
            va: (evaluator.variables.get('va') as bigint | undefined) ?? 0n,
            rkey: variable(evaluator, 'rkey'),
          })
        : request.send({ ...base, ...(invalidate === undefined ? {} : { invalidate }) });
  const kept = spec.fields.filter(({ name }) => name !== 'psn' && !OF_LAST.includes(name));
  return packets.map((packet, i) => {
    const fields = i === 0 ? kept : kept.filter(({ name }) => !OF_FIRST.includes(name));
    const frame = draftOf(flow, packet);
    if (operation.startsWith('UC.')) frame.bth.opcode += UC;
    return finish(frame, fields, evaluator);
  });
}

/** The reason why a packet does not match a pattern. */
export type Mismatch = string;

/** Returns why a received packet does not match a `<` line, or undefined if it matches. */
export function mismatch(frame: Decoded, spec: PacketSpec, evaluator: Evaluator): Mismatch | undefined {
  const { operation } = spec;
  if (operation !== '*' && operation !== 'RAW') {
    const found = OPERATIONS.get(operation);
    if (found === undefined) return evaluator.fail(spec, unknownOperation(operation));
    const { opcode, syndromeClass } = found;
    const isSame =
      frame.bth.opcode === opcode &&
      (syndromeClass ?? (frame.aeth?.syndrome ?? 0) >>> 5) === (frame.aeth?.syndrome ?? 0) >>> 5;
    if (!isSame) return `it is ${operationOf(frame)}`;
  }
  for (const field of spec.fields) {
    const why = fieldMismatch(frame, field, evaluator);
    if (why !== undefined) return why;
  }
  return undefined;
}

/** Returns the variables that a matching `<` line sets (`msn=>m`). */
export function bindings(frame: Decoded, spec: PacketSpec, evaluator: Evaluator): Map<string, Value> {
  const found = new Map<string, Value>();
  for (const field of spec.fields)
    if (field.value.kind === 'bind') found.set(field.value.name, ruleOf(field, evaluator).read(frame) as Value);
  return found;
}

function fieldMismatch(frame: Decoded, field: Field, evaluator: Evaluator): Mismatch | undefined {
  const { name, value, negated } = field;
  const { bits = 64, type, read } = ruleOf(field, evaluator);
  const found = read(frame);
  if (found === undefined) return `it has no ${name}`;
  const cut = (each: Value): Value => {
    if (!fits(each, type)) return evaluator.fail(field, `${name} is ${wanted(type)}, not ${kindOf(each)}`);
    return typeof each === 'bigint' ? BigInt.asUintN(bits, each) : each;
  };
  const differs = (text: string) => `${name} is ${show(found)}, not ${text}`;
  switch (value.kind) {
    case 'bind':
      return undefined;
    case 'flag':
      if (bits !== 1) return evaluator.fail(field, `${name} needs a value`);
      return (found === 1n) === (negated ?? false) ? differs(negated ? '0' : '1') : undefined;
    case 'is': {
      const wish = cut(evaluator.value(value.value));
      return isEqual(found, wish) ? undefined : differs(show(wish));
    }
    case 'not':
      return isEqual(found, cut(evaluator.value(value.value))) ? `${name} is ${show(found)}` : undefined;
    case 'range': {
      const [low, high] = [cut(evaluator.value(value.low)), cut(evaluator.value(value.high))];
      if (typeof found !== 'bigint') return evaluator.fail(field, `${name} has no range`);
      return found >= (low as bigint) && found <= (high as bigint)
        ? undefined
        : differs(`${show(low)} to ${show(high)}`);
    }
  }
}

/** Returns whether two values of a field are the same. */
export function isEqual(a: Value, b: Value): boolean {
  return a instanceof Uint8Array && b instanceof Uint8Array ? Buffer.compare(a, b) === 0 : a === b;
}

/** Returns a value for messages. */
export function show(value: Value): string {
  if (typeof value === 'bigint') return value > 0xffffn ? `0x${value.toString(16)}` : String(value);
  if (value instanceof Uint8Array)
    return value.length > 32 ? `${value.length} bytes` : `bytes("${Buffer.from(value).toString('hex')}")`;
  if (typeof value === 'string') return `"${value}"`;
  return value instanceof Duration ? String(value) : 'a packet';
}

/** Number of PSNs that a request takes: a READ takes one for each packet of its response (IBTA 9.4.4). */
export function psnsOf(frame: Draft, mtu: number): number {
  if (frame.bth.opcode !== Op.RDMA_READ_REQUEST) return frame.bth.opcode === CNP ? 0 : 1;
  return Math.max(1, Math.ceil((frame.reth?.length ?? 0) / mtu));
}
