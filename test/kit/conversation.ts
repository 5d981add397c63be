/**
 * Tests of the protocol as conversations, in the manner of packetdrill: the card has one connected queue pair, and the
 * test plays its peer and its user. Times stand in the margin, in microseconds.
 *
 *     const c = await rc({ rqPsn: 100, receives: 2 });
 *     c.in(0, send({ psn: 100 })).out(ack({ psn: 100, msn: 1 })).wc({ wrId: 1, byteLen: 4 });
 *
 * Nothing goes unnoticed: `out` names all that the card says at that time, byte for byte as the second encoder writes it;
 * `wc` all completions, `events` all events. What nobody asked about fails the test at the next step or at its end.
 */
import { onTestFinished } from 'vitest';
import { openPort, QKEY } from './datagrams.js';
import { describe, type Flow, flow, frame, type Packet, request, reverse } from './packets.js';
import {
  type Completion,
  type ConnectOptions,
  type QpSizes,
  type Region,
  Rig,
  type RigQp,
  type SendRequest,
} from './rig.js';

/** Where the peer finds `target`: an address that is no pointer of ours. */
export const TARGET_VA = 0x4000_0000_0000n;
const REGION_BYTES = 64 * 1024;
/** Every receive that `receives` posts has this size, one behind the other in `buffer`. */
export const RECEIVE_BYTES = 4096;

export interface RcOptions extends Partial<ConnectOptions>, QpSizes {
  /** Receive work requests posted at the start, with wrId 1, 2, ... */
  readonly receives?: number;
  /** How the peer's packets travel. */
  readonly flow?: Partial<Flow>;
  readonly seed?: number;
  /** A card that is there already, instead of a fresh one. */
  readonly rig?: Rig;
}

/** A connected queue pair and all it needs: we send from PSN 1000 on, the peer from 100 on, the path MTU is 1024. */
export async function rc(options: RcOptions = {}): Promise<Conversation> {
  const conversation = new Conversation(options.rig ?? (await Rig.create(options.seed ?? 1)), options);
  onTestFinished(({ task }) => {
    if (task.result?.state !== 'fail') conversation.end();
  });
  return conversation;
}

/** The same with an unreliable connection; its packets are made by `uc(...)`. */
export const unreliable = (options: RcOptions = {}): Promise<Conversation> => rc({ ...options, type: 'UC' });

/** The same with a datagram queue pair of Q_Key 0x1234; our addresses are 10.0.0.1 and fd00::1, the port's MTU 1024. */
export async function datagrams(options: RcOptions = {}): Promise<Conversation> {
  const rig = options.rig ?? (await Rig.create(options.seed ?? 1));
  openPort(rig, ['10.0.0.1', 'fd00::1'], 1024);
  return rc({ qkey: QKEY, type: 'UD', ...options, rig });
}

/** What most tests do not care about: that a request asks for its ACK, and carries a little. */
type Little = Parameters<typeof request.sendOnly>[0];
export const PING = Uint8Array.from(Buffer.from('ping'));
export const send = (o: Little) => request.sendOnly({ ackReq: true, payload: PING, ...o });

/** Bytes that are different at every place, in every test alike. */
export function pattern(length: number, seed = 7): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 151 + (i >> 8) * 31 + seed) & 255);
}

export class Conversation {
  readonly qp: RigQp;
  /** What the user's own work requests use; the receives lie at its start. */
  readonly buffer: Region;
  /** What the peer reads and writes, at TARGET_VA. */
  readonly target: Region;
  /** From the peer to us. */
  readonly there: Flow;
  readonly back: Flow;

  #us = 0;
  #said: Uint8Array[] = [];
  readonly #history: string[] = [];

  constructor(
    readonly rig: Rig,
    options: RcOptions,
  ) {
    this.buffer = rig.region(REGION_BYTES);
    this.target = rig.region(REGION_BYTES, 15, TARGET_VA);
    this.buffer.bytes.set(pattern(REGION_BYTES, 1));
    this.target.bytes.set(pattern(REGION_BYTES, 2));
    this.qp = rig.qp(options);
    this.there = flow({ destQp: this.qp.qpn, ...options.flow });
    this.back = reverse(this.there);
    this.qp.connect({ destQpn: this.there.srcQp, sqPsn: 1000, rqPsn: 100, ...options });
    for (let i = 0; i < (options.receives ?? 0); i++) this.recv(i + 1, i * RECEIVE_BYTES, RECEIVE_BYTES);
  }

  /** Packets of the peer arrive together. */
  in(us: number, ...packets: readonly Packet[]): this {
    return this.frames(us, ...packets.map((packet) => frame(this.there, packet)));
  }

  /** The same for frames that `in` would not make; `options` are those of the descriptor. */
  frames(us: number, ...frames: readonly Uint8Array[]): this {
    return this.#step(us, () => {
      for (const bytes of frames) this.#receive(bytes, 0);
      this.rig.x.rx(us * 1000, frames.length);
    });
  }

  frameWith(us: number, bytes: Uint8Array, options: number): this {
    return this.#step(us, () => {
      this.#receive(bytes, options);
      this.rig.x.rx(us * 1000, 1);
    });
  }

  /** The user posts to the send queue. */
  post(us: number, ...requests: readonly SendRequest[]): this {
    return this.#step(us, () => {
      for (const wr of requests) {
        this.#note(`post ${wr.opcode} wrId ${wr.wrId ?? 0}`);
        const errno = this.qp.send(wr);
        if (errno !== 'OK') this.#fail(`posting ${wr.opcode} was refused: ${errno}`, this.post);
      }
    });
  }

  /** The user posts a receive over a part of `buffer`. */
  recv(wrId: number, offset: number, length: number): this {
    const errno = this.qp.recv(wrId, length === 0 ? [] : [this.buffer.piece(offset, length)]);
    if (errno !== 'OK') this.#fail(`posting a receive was refused: ${errno}`, this.recv);
    return this;
  }

  /** Time goes on to `us`, and `change` happens then. */
  at(us: number, change?: () => unknown): this {
    return this.#step(us, () => change?.());
  }

  /** All that the card says at this time, in order. */
  out(...expected: readonly Packet[]): this {
    const wanted = expected.map((packet) => frame(this.back, packet));
    const said = this.#said;
    this.#said = [];
    for (let i = 0; i < Math.max(wanted.length, said.length); i++) this.#compare(wanted[i], said[i]);
    return this;
  }

  /** The card says nothing at this time. */
  silent(): this {
    return this.out();
  }

  /** Frames of this time that a test wants to look at itself. */
  take(): Uint8Array[] {
    const said = this.#said;
    this.#said = [];
    return said;
  }

  /** All completions since the last call, of our requests before receives where those have a queue of their own; status SUCCESS unless told, fields that are left out may have any value. */
  wc(...expected: readonly Partial<Completion>[]): this {
    const found = this.qp.poll();
    if (this.qp.recvCq !== this.qp.cq) found.push(...this.qp.poll(this.qp.recvCq));
    const wanted = expected.map((each) => ({ status: 'SUCCESS', ...each }));
    const shown = found.map((wc, i) => pick(wc, wanted[i]));
    if (JSON.stringify(shown) === JSON.stringify(wanted)) return this;
    return this.#fail(`completions should be${list(wanted)}\nbut are${list(found)}`, this.wc);
  }

  /** What lies in memory. */
  holds(region: Region, offset: number, expected: Uint8Array): this {
    const found = region.bytes.slice(offset, offset + expected.length);
    const at = expected.findIndex((byte, i) => byte !== found[i]);
    if (at < 0) return this;
    return this.#fail(`byte ${offset + at} of the region should be ${expected[at]} but is ${found[at]}`, this.holds);
  }

  /** All events since the last call. */
  events(...expected: readonly string[]): this {
    const found = this.rig.events();
    if (found.join() === expected.join()) return this;
    return this.#fail(`events should be [${expected}] but are [${found}]`, this.events);
  }

  state(expected: string): this {
    const found = this.qp.state;
    return found === expected ? this : this.#fail(`the state should be ${expected} but is ${found}`, this.state);
  }

  /** Counters of the queue pair that must have exactly these values. */
  counts(expected: Readonly<Record<string, number>>): this {
    return this.#counters(expected, this.qp.counters());
  }

  /** The same for the card: for frames that belong to no queue pair. */
  cardCounts(expected: Readonly<Record<string, number>>): this {
    return this.#counters(expected, this.rig.counters());
  }

  /** Nothing is left that nobody asked about. */
  end(): this {
    return this.silent().wc().events();
  }

  #counters(expected: Readonly<Record<string, number>>, all: Readonly<Record<string, number>>): this {
    const found = Object.fromEntries(Object.keys(expected).map((name) => [name, all[name] ?? 0]));
    if (JSON.stringify(found) === JSON.stringify(expected)) return this;
    const texts = `${JSON.stringify(expected)} but are ${JSON.stringify(found)}`;
    return this.#fail(`counters should be ${texts}; all: ${JSON.stringify(all)}`, this.counts);
  }

  #step(us: number, change: () => void): this {
    this.silent();
    if (us < this.#us) throw new RangeError(`time goes back from ${this.#us} to ${us}`);
    this.#us = us;
    change();
    this.#said = this.rig.out(us * 1000);
    for (const bytes of this.#said) this.#note(`  out ${describe(bytes)}`);
    return this;
  }

  #receive(bytes: Uint8Array, options: number): void {
    this.#note(`in ${describe(bytes)}`);
    if (!this.rig.put(bytes, options)) this.#fail('the receive ring is full', this.frames);
  }

  #compare(wanted: Uint8Array | undefined, said: Uint8Array | undefined): void {
    if (wanted !== undefined && said !== undefined && Buffer.compare(wanted, said) === 0) return;
    const texts = [wanted, said].map((bytes) => (bytes === undefined ? 'nothing' : describe(bytes)));
    const at = wanted && said ? wanted.findIndex((byte, i) => byte !== said[i]) : -1;
    const where = at < 0 ? '' : `\nfirst difference at byte ${at} of the frame: ${wanted?.[at]}, not ${said?.[at]}`;
    this.#fail(`the card should have said\n    ${texts[0]}\nbut said\n    ${texts[1]}${where}`, this.out);
  }

  #note(line: string): void {
    this.#history.push(`${String(this.#us).padStart(9)}  ${line}`);
  }

  #fail(text: string, below: (...args: never[]) => unknown): never {
    const error = new Error(`at ${this.#us} us: ${text}\nthe conversation was\n${this.#history.slice(-40).join('\n')}`);
    Error.captureStackTrace(error, below);
    throw error;
  }
}

function pick(wc: Completion, like: Partial<Completion> | undefined): Partial<Completion> {
  if (like === undefined) return wc;
  return Object.fromEntries(Object.keys(like).map((key) => [key, wc[key as keyof Completion]]));
}

function list(items: readonly object[]): string {
  return items.length === 0 ? '\n    none' : items.map((item) => `\n    ${JSON.stringify(item)}`).join('');
}
