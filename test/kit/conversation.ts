/**
 * Protocol tests as conversations, similar to packetdrill: the card has one connected queue pair, and the test plays
 * its peer and its user. The first argument of a step is its time in microseconds.
 *
 *     const c = await rc({ rqPsn: 100, receives: 2 });
 *     c.in(0, send({ psn: 100 })).out(ack({ psn: 100, msn: 1 })).wc({ wrId: 1, byteLen: 4 });
 *
 * A test must name everything that happens: `out` all packets that the card sends at that time, byte for byte as the
 * second encoder writes them; `wc` all completions; `events` all events. Anything else fails the test at the next step
 * or at its end.
 */
import { onTestFinished } from 'vitest';
import {
  describe,
  encodeFrame,
  type Flow,
  flowOf,
  type Packet,
  request,
  reverse,
} from '../../src/probe/packet/packets.js';
import { openPort, QKEY } from './datagrams.js';
import {
  type Completion,
  type ConnectOptions,
  type QpSizes,
  type Region,
  Rig,
  type RigQp,
  type SendRequest,
} from './rig.js';

/** The address by which the peer accesses `target`. It is not a pointer in card memory. */
export const TARGET_VA = 0x4000_0000_0000n;
const REGION_BYTES = 64 * 1024;
/** The size of every receive that `receives` posts. The receives are consecutive in `buffer`. */
export const RECEIVE_BYTES = 4096;

export interface RcOptions extends Partial<ConnectOptions>, QpSizes {
  /** Receive work requests posted at the start, with wrId 1, 2, ... */
  readonly receives?: number;
  /** Addresses of the peer's packets. */
  readonly flow?: Partial<Flow>;
  readonly seed?: number;
  /** The card drops what arrives ahead of a gap, as rxe does, instead of keeping it. Default: false. */
  readonly goBackN?: boolean;
  /** An existing card, instead of a new one. */
  readonly rig?: Rig;
}

/** Returns a connected RC queue pair. We send from PSN 1000 on, the peer from PSN 100 on, and the path MTU is 1024. */
export async function rc(options: RcOptions = {}): Promise<Conversation> {
  const conversation = new Conversation(options.rig ?? (await Rig.create(options.seed ?? 1)), options);
  onTestFinished(({ task }) => {
    if (task.result?.state !== 'fail') conversation.end();
  });
  return conversation;
}

/** The same with a UC queue pair; `uc(...)` makes its packets. */
export const unreliable = (options: RcOptions = {}): Promise<Conversation> => rc({ ...options, type: 'UC' });

/** The same with a UD queue pair of Q_Key 0x1234. Our addresses are 10.0.0.1 and fd00::1, the port's MTU is 1024. */
export async function datagrams(options: RcOptions = {}): Promise<Conversation> {
  const rig = options.rig ?? (await Rig.create(options.seed ?? 1));
  openPort(rig, ['10.0.0.1', 'fd00::1'], 1024);
  return rc({ qkey: QKEY, type: 'UD', ...options, rig });
}

type SendOnly = Parameters<typeof request.sendOnly>[0];
export const PING = Uint8Array.from(Buffer.from('ping'));
/** A SEND with a short payload that requests an ACK, for tests in which neither matters. */
export const send = (o: SendOnly) => request.sendOnly({ ackReq: true, payload: PING, ...o });

/** Returns bytes that differ from offset to offset, the same in every test. */
export function pattern(length: number, seed = 7): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 151 + (i >> 8) * 31 + seed) & 255);
}

export class Conversation {
  readonly qp: RigQp;
  /** The region of the user's own work requests. The receives are at its start. */
  readonly buffer: Region;
  /** The region that the peer reads and writes, at TARGET_VA. */
  readonly target: Region;
  /** Addresses of packets from the peer to us. */
  readonly there: Flow;
  readonly back: Flow;

  #us = 0;
  #sent: Uint8Array[] = [];
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
    if (options.goBackN) rig.x.setReorderWindow(0);
    this.there = flowOf({ destQp: this.qp.qpn, ...options.flow });
    this.back = reverse(this.there);
    this.qp.connect({ destQpn: this.there.srcQp, sqPsn: 1000, rqPsn: 100, ...options });
    for (let i = 0; i < (options.receives ?? 0); i++) this.recv(i + 1, i * RECEIVE_BYTES, RECEIVE_BYTES);
  }

  /** Packets of the peer arrive at the same time. */
  in(us: number, ...packets: readonly Packet[]): this {
    return this.frames(us, ...packets.map((packet) => encodeFrame(this.there, packet)));
  }

  /** Frames arrive that `in` cannot make. */
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

  /** Advances the time to `us` and calls `change`. */
  at(us: number, change?: () => unknown): this {
    return this.#step(us, () => change?.());
  }

  /** Expects all packets that the card sends at this time, in order. */
  out(...expected: readonly Packet[]): this {
    const wanted = expected.map((packet) => encodeFrame(this.back, packet));
    const sent = this.#sent;
    this.#sent = [];
    for (let i = 0; i < Math.max(wanted.length, sent.length); i++) this.#compare(wanted[i], sent[i]);
    return this;
  }

  /** Expects that the card sends nothing at this time. */
  silent(): this {
    return this.out();
  }

  /** Returns the frames of this time, for a test that checks them itself. */
  take(): Uint8Array[] {
    const sent = this.#sent;
    this.#sent = [];
    return sent;
  }

  /**
   * Expects all completions since the last call; those of the send queue first where receives have a completion queue
   * of their own. The default status is SUCCESS. Omitted fields may have any value.
   */
  wc(...expected: readonly Partial<Completion>[]): this {
    const found = this.qp.poll();
    if (this.qp.recvCq !== this.qp.cq) found.push(...this.qp.poll(this.qp.recvCq));
    const wanted = expected.map((each) => ({ status: 'SUCCESS', ...each }));
    const shown = found.map((wc, i) => pick(wc, wanted[i]));
    if (JSON.stringify(shown) === JSON.stringify(wanted)) return this;
    return this.#fail(`completions should be${list(wanted)}\nbut are${list(found)}`, this.wc);
  }

  /** Expects these bytes in a region. */
  holds(region: Region, offset: number, expected: Uint8Array): this {
    const found = region.bytes.slice(offset, offset + expected.length);
    const at = expected.findIndex((byte, i) => byte !== found[i]);
    if (at < 0) return this;
    return this.#fail(`byte ${offset + at} of the region should be ${expected[at]} but is ${found[at]}`, this.holds);
  }

  /** Expects all events since the last call. */
  events(...expected: readonly string[]): this {
    const found = this.rig.events();
    if (found.join() === expected.join()) return this;
    return this.#fail(`events should be [${expected}] but are [${found}]`, this.events);
  }

  state(expected: string): this {
    const found = this.qp.state;
    return found === expected ? this : this.#fail(`the state should be ${expected} but is ${found}`, this.state);
  }

  /** Expects exactly these values of counters of the queue pair. */
  counts(expected: Readonly<Record<string, number>>): this {
    return this.#counters(expected, this.qp.counters());
  }

  /** Expects exactly these values of the card's counters, for frames that belong to no queue pair. */
  cardCounts(expected: Readonly<Record<string, number>>): this {
    return this.#counters(expected, this.rig.counters());
  }

  /** Expects that no packet, completion or event is left. */
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
    this.#sent = this.rig.out(us * 1000);
    for (const bytes of this.#sent) this.#note(`  out ${describe(bytes)}`);
    return this;
  }

  #receive(bytes: Uint8Array, options: number): void {
    this.#note(`in ${describe(bytes)}`);
    if (!this.rig.put(bytes, options)) this.#fail('the receive ring is full', this.frames);
  }

  #compare(wanted: Uint8Array | undefined, sent: Uint8Array | undefined): void {
    if (wanted !== undefined && sent !== undefined && Buffer.compare(wanted, sent) === 0) return;
    const texts = [wanted, sent].map((bytes) => (bytes === undefined ? 'nothing' : describe(bytes)));
    const at = wanted && sent ? wanted.findIndex((byte, i) => byte !== sent[i]) : -1;
    const where = at < 0 ? '' : `\nfirst difference at byte ${at} of the frame: ${wanted?.[at]}, not ${sent?.[at]}`;
    this.#fail(`the card should have sent\n    ${texts[0]}\nbut sent\n    ${texts[1]}${where}`, this.out);
  }

  #note(line: string): void {
    this.#history.push(`${String(this.#us).padStart(9)}  ${line}`);
  }

  #fail(text: string, below: (...args: never[]) => unknown): never {
    const history = this.#history.slice(-40).join('\n');
    const decisions = this.rig.decisions(this.qp.qpn).join('\n') || '     none';
    const error = new Error(
      `at ${this.#us} us: ${text}\nthe conversation was\n${history}\nthe card decided\n${decisions}`,
    );
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
