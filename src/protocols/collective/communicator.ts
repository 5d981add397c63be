/**
 * A communicator: processes that combine and exchange arrays. Each is a rank.
 *
 * Rendezvous connects the ranks, schedule.ts says who sends what to whom, lanes carry that out, and peers move the
 * data.
 */

import { lookup } from 'node:dns/promises';
import {
  anything,
  type Check,
  type Checks,
  checkInteger,
  checkOptions,
  oneOf,
  wrongNumber,
  wrongType,
} from '../../base/options.js';
import { Scope } from '../../base/scope.js';
import { clearInterval, setInterval } from '../../base/timers.js';
import { emitWarning } from '../../base/warning.js';
import { invalidType } from '../../errors.js';
import { type AccessFlags, type Cq, type Device, type Mr, openDevice, type Pd } from '../../index.js';
import { registerForCall } from '../../transport/callmemory.js';
import { CompletionPump } from '../../transport/completions.js';
import { bytesOf, type ElementName, type ElementType, type NumberArray, typeNamed, typeOf } from './elements.js';
import { RankError, type RankErrorCode } from './errors.js';
import { type Call, LANE_BYTES, Lane, type Operand, otherCall } from './lane.js';
import {
  type CommunicatorOptions,
  type CommunicatorSettings,
  communicatorSettings,
  type RankEndpoint,
} from './options.js';
import { CQE_PER_PEER, type Peer, type PeerListener } from './peer.js';
import { REDUCE_OPS, type ReduceOpName, Reducer } from './reducer.js';
import { Rendezvous } from './rendezvous.js';
import {
  partOf,
  type Range,
  ringAllGather,
  ringAllReduce,
  ringBroadcast,
  ringReduceScatter,
  sliceOf,
  treeAllReduce,
  treeBroadcast,
} from './schedule.js';
import { type ControlMessage, callTag, EAGER_BYTES, LANES, SLOT_BYTES, sequenceOf } from './wire.js';

/** Algorithm: `ring` moves long arrays with all links at once, `tree` takes fewer steps for short ones. */
export type Algorithm = 'ring' | 'tree';

/** Options of `allReduce`, the same at each rank. */
export interface AllReduceOptions {
  /** Operation on the elements. Integers wrap around. Default `sum`. */
  readonly op?: ReduceOpName;
  /** Default: `tree` for up to 64 KiB, else `ring`. */
  readonly algorithm?: Algorithm;
}

/** Options of `reduceScatter`. */
export interface ReduceScatterOptions<A extends NumberArray = NumberArray> {
  /** Operation on the elements, the same at each rank. Integers wrap around. Default `sum`. */
  readonly op?: ReduceOpName;
  /** Array for the result. Default: a new one. */
  readonly into?: A;
}

/** Options of `broadcast`, the same at each rank. */
export interface BroadcastOptions {
  /** The rank whose array the others get. Default 0. */
  readonly root?: number;
  /** Default: `tree` for up to 64 KiB, else `ring`. */
  readonly algorithm?: Algorithm;
}

const ALGORITHM: Check = oneOf('ring', 'tree');
const OP: Check = oneOf(...REDUCE_OPS);
const ALL_REDUCE_CHECKS: Checks<AllReduceOptions> = { op: OP, algorithm: ALGORITHM };
const REDUCE_SCATTER_CHECKS: Checks<ReduceScatterOptions> = { op: OP, into: anything };
const BROADCAST_CHECKS: Checks<BroadcastOptions> = { root: anything, algorithm: ALGORITHM };
const ALL_GATHER_CHECKS: Checks<{ readonly into?: NumberArray }> = { into: anything };

/** Longest array that takes fewer steps rather than all links (bytes). */
const SHORT_BYTES = 65_536;
/** Shortest slice into which a longer array is cut, so that its slices overlap (bytes). It needs no credit. */
const MIN_SLICE_BYTES = EAGER_BYTES;
/** Heartbeats in the time after which a silent rank is dead. */
const BEATS = 5;
const NOWHERE: Operand = { bytes: new Uint8Array(0), place: undefined, start: 0 };

/** The parts of a device that a communicator has. */
interface Parts {
  /** All of it, and the device if it is its own. */
  readonly scope: Scope;
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
  readonly buffers: Mr;
}

/** The content of a call, without its tag. */
type CallInit = Omit<Call, 'tag' | 'op'> & { readonly op?: ReduceOpName };

/**
 * One rank of a communicator; `openCommunicator` makes it. All ranks make the same calls in the same order, with arrays
 * of the same type and length. Calls may overlap; they are carried out one after the other. An array must not be
 * changed before its call has resolved.
 *
 * When a rank dies, leaves or makes another call than the others, all calls of all ranks fail with a `RankError` that
 * has its number, and the communicator is of no use any more.
 */
export class Communicator {
  readonly #settings: CommunicatorSettings;
  readonly #parts: Parts;
  readonly #rendezvous: Rendezvous;
  readonly #reducer: Reducer;
  readonly #lanes: readonly Lane[];
  readonly #arrays = new Map<NumberArray, Mr>();
  /** Tags of calls that others make and we do not yet, with a rank that makes them. */
  readonly #early = new Map<number, number>();
  readonly #pump: CompletionPump;
  readonly #timer: NodeJS.Timeout;
  readonly #ended = new AbortController();
  #current: Call | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #calls = 0;
  #sequence = 0;
  #failure: Error | undefined;
  #closed: Promise<void> | undefined;
  /** Resolves when the communicator has ended and no rank can write any more. */
  readonly #detached: Promise<void>;
  #detach: () => void = () => {};

  private constructor(settings: CommunicatorSettings, parts: Parts) {
    this.#settings = settings;
    this.#parts = parts;
    this.#detached = new Promise((resolve) => {
      this.#detach = resolve;
    });
    const listener: PeerListener = {
      onTag: (peer, tag) => this.#onTag(peer, tag),
      onControl: (peer, message) => this.#onControl(peer, message),
      onEnd: (_, error) => this.#fail(error),
      drain: () => this.#pump.drainAll(),
    };
    this.#rendezvous = new Rendezvous(settings, parts, listener);
    this.#reducer = new Reducer(parts.device.sharedMemory, settings.size > 1 && settings.reduceThread === 'worker');
    const peerOf = (rank: number) => this.#rendezvous.peers.get(rank) as Peer;
    this.#lanes = Array.from(
      { length: LANES },
      (_, lane) => new Lane(lane, parts.buffers, lane * LANE_BYTES, this.#reducer, peerOf),
    );
    this.#pump = new CompletionPump(parts.cq, (wc) => this.#rendezvous.peerWith(wc.qpNum)?.take(wc));
    this.#timer = setInterval(() => this.#beat(), settings.timeout / BEATS).unref();
  }

  /** @internal */
  static async open(options: CommunicatorOptions): Promise<Communicator> {
    const settings = communicatorSettings(options);
    settings.signal?.throwIfAborted();
    const communicator = await Scope.open(async (scope) => {
      const device = settings.device ?? (await openOwn(settings));
      if (settings.device === undefined) scope.add({ close: () => device.close({ force: true }) });
      const pd = scope.add(await device.allocPd());
      const cqe = Math.max(1, Rendezvous.connections(settings)) * CQE_PER_PEER;
      const cq = scope.add(await device.createCq({ cqe }));
      const buffers = scope.add(await pd.regMr(settings.size === 1 ? 1 : LANES * LANE_BYTES));
      return new Communicator(settings, { scope, device, pd, cq, buffers });
    });
    await communicator.#join();
    return communicator;
  }

  /** Number of this process. */
  get rank(): number {
    return this.#settings.rank;
  }

  /** Number of ranks. */
  get size(): number {
    return this.#settings.size;
  }

  /**
   * Returns which elements of an array of `length` are the part of a rank, from `start` up to `end`, exclusive. The
   * parts of two ranks differ by at most one element.
   * @param rank default: this one
   * @throws RangeError
   */
  partOf(length: number, rank = this.rank): Range {
    checkInteger('length', length, 0, Number.MAX_SAFE_INTEGER);
    checkInteger('rank', rank, 0, this.size - 1);
    return partOf(length, rank, this.size);
  }

  /**
   * Returns an array in the card's memory, where calls also combine arrays without a copy.
   * @param length number of elements
   * @throws TypeError, RangeError; VerbsError ENOMEM; why the communicator has ended
   */
  async allocate(type: 'Float32Array', length: number): Promise<Float32Array>;
  async allocate(type: 'Float64Array', length: number): Promise<Float64Array>;
  async allocate(type: 'Int32Array', length: number): Promise<Int32Array>;
  async allocate(type: 'BigInt64Array', length: number): Promise<BigInt64Array>;
  async allocate(type: ElementName, length: number): Promise<NumberArray> {
    const element = typeNamed(type);
    checkInteger('length', length, 1, 2 ** 32 / element.bytes);
    this.#assertUsable();
    const mr = await this.#parts.pd.regMr(length * element.bytes, { access: ['localWrite', 'remoteWrite'] });
    const array = new element.array(mr.buffer.buffer, mr.buffer.byteOffset, length);
    this.#arrays.set(array, mr);
    return array;
  }

  /**
   * Frees an array of `allocate`, which must not be used any more. `close` frees all of them.
   * @throws TypeError for another array
   */
  async free(array: NumberArray): Promise<void> {
    const mr = this.#arrays.get(array);
    if (mr === undefined) throw wrongType('array', 'another', 'one of allocate');
    await this.#last.catch(() => {});
    this.#arrays.delete(array);
    await mr.close();
  }

  /**
   * Combines the arrays of all ranks, element by element. Each rank's array becomes the result, which is the same at
   * all ranks, bit by bit.
   * @throws TypeError, RangeError; RankError
   */
  async allReduce(array: NumberArray, options: AllReduceOptions = {}): Promise<void> {
    const element = typeOf('array', array);
    const { op = 'sum', algorithm } = checkOptions('allReduce', options, ALL_REDUCE_CHECKS);
    const operand = this.#operand(array);
    const { length } = array;
    const position = this.#settings;
    const isTree = this.#isTree(array.byteLength, algorithm);
    const cut = this.#cut(isTree ? length : this.#longestPart(length), element);
    const text = `allReduce of ${element.name}[${length}], ${op}, ${isTree ? 'tree' : 'ring'}`;
    const steps = (round: number) =>
      isTree
        ? treeAllReduce(position, sliceOf({ start: 0, end: length }, round, cut.slice))
        : ringAllReduce(position, (rank) => sliceOf(partOf(length, rank, this.size), round, cut.slice));
    await this.#call({ text, element, op, source: operand, target: operand, steps, ...cut });
  }

  /**
   * Combines the arrays of all ranks, element by element. Each rank gets its part of the result, see `partOf`.
   * @returns the part
   * @throws TypeError, RangeError; RankError
   */
  async reduceScatter<A extends NumberArray>(array: A, options: ReduceScatterOptions<A> = {}): Promise<A> {
    const element = typeOf('array', array);
    const { op = 'sum', into: given } = checkOptions('reduceScatter', options, REDUCE_SCATTER_CHECKS);
    const { length } = array;
    const own = this.partOf(length);
    const into = this.#result('into', given, element, own.end - own.start) as A;
    if (this.size === 1) bytesOf(into).set(bytesOf(array));
    const cut = this.#cut(this.#longestPart(length), element);
    const text = `reduceScatter of ${element.name}[${length}], ${op}`;
    const steps = (round: number) =>
      ringReduceScatter(this.#settings, (rank) => sliceOf(partOf(length, rank, this.size), round, cut.slice));
    const target = this.#operand(into, own.start * element.bytes);
    await this.#call({ text, element, op, source: this.#operand(array), target, steps, ...cut });
    return into;
  }

  /**
   * Collects the parts of all ranks, in the order of their numbers.
   * @param part of this rank
   * @param options `into`: where the result goes. Its length says which part each rank has, see `partOf`. Default: a
   * new array, of `size` times the length of `part`
   * @returns the whole array
   * @throws TypeError, RangeError; RankError
   */
  async allGather<A extends NumberArray>(part: A, options: { readonly into?: A } = {}): Promise<A> {
    const element = typeOf('part', part);
    const { into: given } = checkOptions('allGather', options, ALL_GATHER_CHECKS);
    const length = given?.length ?? part.length * this.size;
    const into = this.#result('into', given, element, length) as A;
    const own = this.partOf(length);
    if (part.length !== own.end - own.start)
      throw wrongNumber('part.length', part.length, `${own.end - own.start}, the part of rank ${this.rank}`);
    const cut = this.#cut(this.#longestPart(length), element);
    const text = `allGather of ${element.name}[${length}]`;
    const steps = (round: number) =>
      ringAllGather(this.#settings, (rank) => sliceOf(partOf(length, rank, this.size), round, cut.slice));
    const source = this.#operand(part, own.start * element.bytes);
    await this.#call({ text, element, source, target: this.#operand(into), steps, ...cut }, () => {
      const [from, to] = [bytesOf(part), bytesOf(into).subarray(own.start * element.bytes)];
      if (from.buffer !== to.buffer || from.byteOffset !== to.byteOffset) to.set(from);
    });
    return into;
  }

  /**
   * Copies the array of one rank to the arrays of the others.
   * @throws TypeError, RangeError; RankError
   */
  async broadcast(array: NumberArray, options: BroadcastOptions = {}): Promise<void> {
    const element = typeOf('array', array);
    const { root = 0, algorithm } = checkOptions('broadcast', options, BROADCAST_CHECKS);
    checkInteger('root', root, 0, this.size - 1);
    const operand = this.#operand(array);
    const { length } = array;
    const isTree = this.#isTree(array.byteLength, algorithm);
    const cut = this.#cut(length, element);
    const text = `broadcast of ${element.name}[${length}] from rank ${root}, ${isTree ? 'tree' : 'ring'}`;
    const broadcast = isTree ? treeBroadcast : ringBroadcast;
    const steps = (round: number) =>
      broadcast(this.#settings, root, sliceOf({ start: 0, end: length }, round, cut.slice));
    await this.#call({ text, element, source: operand, target: operand, steps, ...cut });
  }

  /** Resolves when all ranks have called it. @throws RankError */
  async barrier(): Promise<void> {
    const element = typeNamed('Int32Array');
    const steps = () => treeAllReduce(this.#settings, { start: 0, end: 0 });
    await this.#call({ text: 'barrier', element, source: NOWHERE, target: NOWHERE, steps, rounds: 1, isEager: true });
  }

  /**
   * Leaves the communicator, after the calls that were made, and frees its memory and arrays. Ranks that still make
   * calls get a RankError. It throws nothing: a communicator that has ended can only be closed.
   */
  close(): Promise<void> {
    this.#closed ??= this.#last.catch(() => {}).then(() => this.#end());
    return this.#closed;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---- of peers ----

  #onTag(peer: Peer, tag: number): void {
    const current = this.#current;
    const isCurrent = current !== undefined && sequenceOf(tag) === sequenceOf(current.tag);
    if (!isCurrent) this.#early.set(tag, peer.rank);
    else if (tag !== current.tag) this.#fail(otherCall(peer.rank, current.text));
  }

  #onControl(peer: Peer, message: ControlMessage): void {
    if (message.type === 'endpoint') this.#rendezvous.onEndpoint(message);
    else if (message.type === 'leave') peer.markLeft();
    else this.#fail(new RankError(message.rank, message.code as RankErrorCode, message.text));
  }

  // ---- calls ----

  /** @param begin function to call before the first step */
  async #call(init: CallInit, begin?: () => void): Promise<void> {
    this.#assertUsable();
    const sequence = this.#sequence++;
    const call: Call = { op: 'sum', ...init, tag: callTag(sequence, init.text) };
    if (this.#calls++ === 0) this.#timer.ref();
    const done = this.#last
      .catch(() => {})
      .then(async () => {
        this.#assertUsable();
        begin?.();
        if (this.size > 1) await this.#runOn(call);
      });
    this.#last = done;
    try {
      await done;
    } finally {
      if (--this.#calls === 0) this.#timer.unref();
    }
  }

  /** Runs a call on its arrays. Long arrays of the program are registered meanwhile. */
  async #runOn(call: Call): Promise<void> {
    const mrs: Mr[] = [];
    const registered = (operand: Operand, access: AccessFlags): Operand => {
      if (operand.place !== undefined) return operand;
      const mr = registerForCall(this.#parts.pd, operand.bytes, access);
      if (mr === undefined) return operand;
      mrs.push(mr);
      return { ...operand, place: { mr, offset: 0 } };
    };
    try {
      const target = registered(call.target, ['localWrite', 'remoteWrite']);
      const source = call.source === call.target ? target : registered(call.source, []);
      await this.#run({ ...call, source, target });
    } catch (error) {
      // a rank that does not know of the failure yet may still write
      if (mrs.length > 0) await this.#detached;
      throw error;
    } finally {
      for (const mr of mrs) await mr.close();
    }
  }

  async #run(call: Call): Promise<void> {
    this.#current = call;
    for (const [tag, rank] of this.#early) {
      if (sequenceOf(tag) !== sequenceOf(call.tag)) continue;
      this.#early.delete(tag);
      if (tag !== call.tag) this.#fail(otherCall(rank, call.text));
    }
    const lanes = await Promise.allSettled(this.#lanes.slice(0, call.rounds).map((lane) => lane.run(call)));
    this.#current = undefined;
    for (const lane of lanes) if (lane.status === 'rejected') this.#fail(lane.reason);
    this.#assertUsable();
  }

  /** Returns what the other ranks are told of a failure. */
  #abort(error: Error): ControlMessage {
    const { rank, code, message } =
      error instanceof RankError ? error : { rank: this.rank, code: 'ECONNRESET', message: error.message };
    return { type: 'abort', rank, code, text: message.replace(`${code}: `, '') };
  }

  #assertUsable(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Cuts what each step is about into rounds. @param length elements of the longest part */
  #cut(length: number, { bytes }: ElementType): { slice: number; rounds: number; isEager: boolean } {
    const even = Math.ceil((length * bytes) / LANES);
    const sliceBytes = Math.min(Math.max(even, MIN_SLICE_BYTES), SLOT_BYTES);
    const slice = Math.max(1, Math.min(length, Math.ceil(sliceBytes / bytes)));
    return { slice, rounds: Math.max(1, Math.ceil(length / slice)), isEager: slice * bytes <= EAGER_BYTES };
  }

  #longestPart(length: number): number {
    return Math.ceil(length / this.size);
  }

  #isTree(bytes: number, algorithm: Algorithm | undefined): boolean {
    if (algorithm === undefined) return bytes <= SHORT_BYTES;
    return algorithm === 'tree';
  }

  /** @param start offset of the first byte in the whole array */
  #operand(array: NumberArray, start = 0): Operand {
    const bytes = bytesOf(array);
    for (const mr of this.#arrays.values()) {
      const offset = bytes.byteOffset - mr.addr;
      if (bytes.buffer === this.#parts.device.sharedMemory.buffer && offset >= 0 && offset + bytes.length <= mr.length)
        return { bytes, place: { mr, offset }, start };
    }
    return { bytes, place: undefined, start };
  }

  #result(name: string, into: NumberArray | undefined, element: ElementType, length: number): NumberArray {
    if (into === undefined) return new element.array(new ArrayBuffer(length * element.bytes), 0, length);
    if (typeOf(name, into) !== element)
      throw invalidType(`${name} is ${typeOf(name, into).name}, must be ${element.name}`);
    if (into.length !== length) throw wrongNumber(`${name}.length`, into.length, `${length}`);
    return into;
  }

  // ---- connections ----

  async #join(): Promise<void> {
    const { joinTimeout, signal, size } = this.#settings;
    const late = AbortSignal.timeout(joinTimeout);
    const ends = AbortSignal.any([late, this.#ended.signal, ...(signal === undefined ? [] : [signal])]);
    this.#timer.ref();
    try {
      if (size > 1) await this.#rendezvous.run(ends);
      await this.#rendezvous.close();
      this.#timer.unref();
    } catch (cause) {
      const error = late.aborted && this.#failure === undefined ? this.#lateness(joinTimeout) : (cause as Error);
      this.#fail(this.#failure ?? error);
      await this.#closed;
      throw this.#failure;
    }
  }

  /** The error of ranks that have not joined in time. */
  #lateness(joinTimeout: number): RankError {
    const { missing } = this.#rendezvous;
    const what = missing.length > 1 ? `ranks ${missing.join(', ')} have` : `rank ${missing[0] ?? 0} has`;
    return new RankError(missing[0] ?? 0, 'ETIMEDOUT', `${what} not joined within ${joinTimeout} ms`);
  }

  #beat(): void {
    for (const peer of this.#rendezvous.peers.values()) peer.heartbeat(this.#settings.timeout);
  }

  /** The communicator has ended: all calls fail, and the other ranks are told. */
  #fail(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#ended.abort(error);
    for (const lane of this.#lanes) lane.fail(error);
    for (const peer of this.#rendezvous.peers.values()) peer.fail(error);
    this.#closed ??= this.#end();
  }

  /** Tells the other ranks why, disconnects from them, and frees everything. */
  async #end(): Promise<void> {
    const { scope, pd } = this.#parts;
    clearInterval(this.#timer);
    const message: ControlMessage = this.#failure === undefined ? { type: 'leave' } : this.#abort(this.#failure);
    this.#failure ??= new RankError(this.rank, 'ECANCELED', 'the communicator was closed');
    await this.#rendezvous.close();
    const peers = [...this.#rendezvous.peers.values()];
    const close = async (peer: Peer) => {
      const isUnanswered = await peer.close(() => peer.control(pd, message));
      if (isUnanswered && message.type === 'leave') this.#warnOfLeave(peer.rank);
    };
    await Promise.all(peers.map(close));
    this.#detach();
    await this.#last.catch(() => {});
    await this.#reducer.close();
    for (const mr of this.#arrays.values()) await mr.close();
    await scope.close();
  }

  /** A rank that does not know that this one has left takes the disconnect for a failure. */
  #warnOfLeave(rank: number): void {
    emitWarning('WASM_ROCE_LEAVE', `rank ${this.rank} has left, and rank ${rank} has not acknowledged that`);
  }
}

/** Opens a device whose card answers while the program computes. */
async function openOwn({ rank, endpoints, isLearnt }: CommunicatorSettings): Promise<Device> {
  if (isLearnt && rank > 0) return openDevice({ mode: 'worker', peer: (endpoints[0] as RankEndpoint).host });
  const own = endpoints[rank];
  if (own === undefined) return openDevice({ mode: 'worker' });
  return openDevice({ mode: 'worker', addresses: [(await lookup(own.host)).address] });
}
