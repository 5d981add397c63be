/** One end of RDMA: `a` is active, `b` serves. `a` controls `b` by SENDs with immediate on the same queue pair. */
import { performance } from 'node:perf_hooks';
import {
  type Cq,
  type Device,
  type Endpoint,
  type Mr,
  openDevice,
  type Qp,
  type RecvWr,
  type RemoteMemory,
  throwIfFailed,
  type Wc,
} from 'wasm-roce';
import { latencyOf } from '../rig/stats.js';
import type { Operation, Part, Work } from '../work.js';
import { cpuSince } from './calls.js';
import { Stopwatch } from './stopwatch.js';

export interface RdmaOptions {
  readonly link: string;
  readonly mode: string;
  readonly interface: string;
  /** Probability that a frame sent by this end is lost, 0 to 1. */
  readonly drop?: number;
  readonly flowSteering?: boolean;
  readonly icrcOffload?: boolean;
}

export interface Introduction {
  readonly endpoints: readonly Endpoint[];
  readonly memory: RemoteMemory;
}

const QPS = 8;
const BIGGEST = 2 ** 20;
/** Receives of a queue pair, all into the same memory, as in perftest. */
const RECEIVES = 512;
const SENDS = 256;
/** The meaning of an immediate. */
enum Say {
  BEGIN = 1,
  END = 2,
}
const OPCODES = { SEND: 'SEND', WRITE: 'RDMA_WRITE', READ: 'RDMA_READ' } as const;
/** The longest time in ms that a run may exceed its duration. */
const PATIENCE = 20_000;

interface Lane {
  readonly qp: Qp;
  readonly receive: RecvWr;
  /** Messages of this queue pair in flight: posted, and not yet covered by a completion. */
  outstanding: number;
}

export class RdmaEnd {
  #device!: Device;
  #sendCq!: Cq;
  #recvCq!: Cq;
  #mr!: Mr;
  #lanes: Lane[] = [];
  #remote!: RemoteMemory;
  #sendWcs: Wc[] = [];
  #recvWcs: Wc[] = [];
  #one: Wc[] = [];

  async open(given: RdmaOptions): Promise<Introduction> {
    const { link, mode, interface: name, drop, flowSteering = false, icrcOffload = true } = given;
    const options = {
      link,
      mode,
      interface: name,
      memoryBytes: 64 * 2 ** 20,
      flowSteering,
      icrcOffload,
      ...(drop !== undefined && { fault: { seed: 1, tx: { drop } } }),
    };
    this.#device = await openDevice(options as Parameters<typeof openDevice>[0]);
    const { mode: got = 'inline' } = this.#device as { readonly mode?: string };
    if (got !== mode) throw new Error(`this build has no ${mode} mode`);
    await this.#build();
    return { endpoints: this.#lanes.map(({ qp }) => qp.endpoint()), memory: this.#mr.remote };
  }

  async #build(): Promise<void> {
    this.#lanes = [];
    const device = this.#device;
    const pd = await device.allocPd();
    this.#sendCq = await device.createCq({ cqe: QPS * SENDS });
    this.#recvCq = await device.createCq({ cqe: QPS * RECEIVES });
    this.#sendWcs = this.#sendCq.createWcs(64);
    this.#recvWcs = this.#recvCq.createWcs(64);
    this.#one = this.#recvCq.createWcs(1);
    this.#mr = await pd.regMr(2 * BIGGEST, { access: ['localWrite', 'remoteWrite', 'remoteRead'] });
    for (let i = 0; i < QPS; i++) {
      const rings = { maxSendWr: SENDS, maxRecvWr: RECEIVES, maxSendSge: 1, maxRecvSge: 1, sqSigAll: false };
      const qp = await pd.createQp({ sendCq: this.#sendCq, recvCq: this.#recvCq, ...rings });
      this.#lanes.push({ qp, receive: { wrId: i, sgList: this.#mr.sge(BIGGEST) }, outstanding: 0 });
    }
  }

  async connect({ endpoints, memory }: Introduction): Promise<void> {
    this.#remote = memory;
    for (const [i, { qp, receive }] of this.#lanes.entries()) {
      await qp.connect(endpoints[i] as Endpoint, { access: ['remoteWrite', 'remoteRead'] });
      for (let n = 0; n < RECEIVES; n++) qp.postRecv(receive);
    }
  }

  async close(): Promise<void> {
    await this.#device.close({ force: true });
  }

  counters(): Record<string, number> {
    return this.#device.counters();
  }

  // ---- the active end ----

  async run(work: Work): Promise<Part> {
    await this.#say(Say.BEGIN);
    const part = work.kind === 'pingpong' ? await this.#pingPong(work) : await this.#stream(work);
    await this.#say(Say.END);
    return part;
  }

  async #say(immData: Say): Promise<void> {
    this.#lane(0).qp.postSend({ opcode: 'SEND_WITH_IMM', immData, signaled: true });
    throwIfFailed(await this.#sendCq.next({ timeout: PATIENCE }));
  }

  async #stream(work: Work): Promise<Part> {
    const { depth, batch } = depthOf(work);
    const lanes = this.#lanes.slice(0, work.qps);
    const watch = new Stopwatch(work, () => this.#frames());
    // One request of a batch is signaled, and its completion covers the batch.
    const quiet = this.#request(work, work.operation, 0);
    const asking = lanes.map((_, i) => ({ ...quiet, wrId: i, signaled: true }));
    let outstanding = 0;
    const done = (wc: Wc) => {
      throwIfFailed(wc);
      this.#lane(wc.wrId).outstanding -= batch;
      outstanding -= batch;
      watch.messages += batch;
    };
    for (let isOver = false; !isOver || outstanding > 0; isOver ||= watch.tick()) {
      for (let i = 0; i < lanes.length && !isOver; i++) {
        const lane = lanes[i] as Lane;
        for (; lane.outstanding + batch <= depth; lane.outstanding += batch, outstanding += batch) {
          for (let n = 1; n < batch; n++) lane.qp.postSend(quiet);
          lane.qp.postSend(asking[i] as typeof quiet);
        }
      }
      if (work.waiting === 'sleep') done(await this.#sendCq.next({ timeout: PATIENCE }));
      const count = this.#sendCq.poll(this.#sendWcs);
      for (let i = 0; i < count; i++) done(this.#sendWcs[i] as Wc);
    }
    return watch.part();
  }

  async #pingPong(work: Work): Promise<Part> {
    const { size, operation, waiting } = work;
    const watch = new Stopwatch(work);
    const times: number[] = [];
    const ping = this.#request(work, operation, 0);
    const signaled = { ...ping, signaled: true };
    const ownLast = BIGGEST + size - 1;
    const { buffer } = this.#mr;
    for (let begin = performance.now(); !watch.tick(begin); watch.messages++) {
      const mark = (watch.messages % 250) + 1;
      if (operation === 'WRITE') buffer[size - 1] = mark;
      const isAsking = operation === 'READ' || watch.messages % 64 === 63;
      this.#lane(0).qp.postSend(isAsking ? signaled : ping);
      // A spinning program must not use await, which returns to the event loop.
      if (operation === 'WRITE') while (buffer[ownLast] !== mark) this.#recvCq.poll(this.#recvWcs);
      else if (waiting === 'sleep') this.#pinged(await this.#due(operation).next({ timeout: PATIENCE }), operation);
      else this.#pinged(this.#spin(operation), operation);
      if (operation !== 'READ' && isAsking) this.#reap();
      const end = performance.now();
      if (watch.isMeasuring) times.push(end - begin);
      begin = end;
    }
    while (operation !== 'READ' && this.#reaped < watch.messages >> 6) this.#reap();
    this.#reaped = 0;
    const { cpu } = watch.part();
    return { cpu, messages: watch.messages, latency: latencyOf(Float64Array.from(times)) };
  }

  /** Completions of sends, which are polled but not waited for. */
  #reaped = 0;
  #reap(): void {
    const count = this.#sendCq.poll(this.#sendWcs);
    for (let i = 0; i < count; i++) throwIfFailed(this.#sendWcs[i] as Wc);
    this.#reaped += count;
  }

  /** Returns the completion queue that reports the end of a round trip. */
  #due(operation: Operation): Cq {
    return operation === 'READ' ? this.#sendCq : this.#recvCq;
  }

  #spin(operation: Operation): Wc {
    const cq = this.#due(operation);
    const until = performance.now() + PATIENCE;
    for (let tries = 1; cq.poll(this.#one) === 0; tries++)
      if (tries % 4096 === 0 && performance.now() > until) throw new Error('no answer from the other end');
    return this.#one[0] as Wc;
  }

  #pinged(wc: Wc, operation: Operation): void {
    if (operation === 'READ') throwIfFailed(wc);
    else this.#repost(wc);
  }

  // ---- the passive end ----

  /** Serves until the active end announces the end of the run. */
  async serve(work: Work): Promise<Part> {
    const { kind, operation, size, waiting } = work;
    const isPong = kind === 'pingpong' && operation === 'SEND';
    const pong = this.#request(work, operation === 'READ' ? 'SEND' : operation, 0);
    const signaled = { ...pong, signaled: true };
    const last = BIGGEST + size - 1;
    const { buffer } = this.#mr;
    let cpu = process.cpuUsage();
    let pongs = 0;
    let mark = 0;
    const answer = () => {
      this.#lane(0).qp.postSend(++pongs % 64 === 0 ? signaled : pong);
      if (pongs % 64 === 0) this.#reap();
    };
    const take = (wc: Wc): boolean => {
      throwIfFailed(wc);
      this.#repost(wc);
      if (wc.hasImm && wc.immData === Say.END) return true;
      if (wc.hasImm) cpu = process.cpuUsage();
      else if (isPong) answer();
      return false;
    };
    const until = performance.now() + work.warmMs + work.ms + PATIENCE;
    for (let isOver = false; !isOver; ) {
      if (waiting === 'sleep') isOver = take(await this.#recvCq.next({ timeout: PATIENCE + work.ms }));
      // A ping-pong has one message at a time; for a stream more completions may be there already.
      const count = waiting === 'sleep' && kind === 'pingpong' ? 0 : this.#recvCq.poll(this.#recvWcs);
      for (let i = 0; i < count; i++) isOver = take(this.#recvWcs[i] as Wc) || isOver;
      if (kind === 'pingpong' && operation === 'WRITE' && buffer[last] !== mark) {
        mark = buffer[size - 1] = buffer[last] as number;
        answer();
      }
      if (waiting === 'spin' && count === 0 && performance.now() > until) throw new Error('the other end does not end');
    }
    const part = { cpu: cpuSince(cpu) };
    // cleared now, because the first ping of the next work may arrive before this end is called
    buffer.fill(0, BIGGEST, BIGGEST + size);
    while (this.#reaped < pongs >> 6) this.#reap();
    this.#reaped = 0;
    return part;
  }

  // ---- both ----

  #lane(index: number): Lane {
    return this.#lanes[index] as Lane;
  }

  #repost(wc: Wc): void {
    throwIfFailed(wc);
    const { qp, receive } = this.#lane(wc.wrId);
    qp.postRecv(receive);
  }

  #request({ size }: Work, operation: Operation, wrId: number) {
    const remote = { remoteAddr: Number(this.#remote.addr) + BIGGEST, rkey: this.#remote.rkey };
    return {
      opcode: OPCODES[operation],
      wrId,
      signaled: false,
      sgList: this.#mr.sge(0, size),
      ...(operation !== 'SEND' && remote),
    } as {
      opcode: 'RDMA_WRITE';
      wrId: number;
      signaled: boolean;
      sgList: ReturnType<Mr['sge']>;
      remoteAddr: number;
      rkey: number;
    };
  }

  #frames(): number {
    const { sent_pkts = 0, rcvd_pkts = 0 } = this.#device.counters();
    return sent_pkts + rcvd_pkts;
  }
}

/** Returns the messages in flight of a queue pair, and the number of messages that one completion covers. */
export function depthOf({ size, qps, operation }: Work): { depth: number; batch: number } {
  const inFlight = Math.max(4, Math.min(operation === 'READ' ? 16 : 128, (4 * 2 ** 20) / size));
  const depth = Math.max(4, inFlight / (operation === 'READ' ? 1 : Math.sqrt(qps))) & ~3;
  return { depth, batch: depth / 4 };
}
