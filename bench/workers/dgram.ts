/** One end of Node's `dgram`. Lost datagrams are not sent again; the receiver counts those that arrive. */

import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { latencyOf } from '../rig/stats.js';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';
import { Stopwatch } from './stopwatch.js';

/** IPv4 and UDP headers. */
const HEADERS = 28;
/** Sends that may be pending in Node at a time. */
const IN_FLIGHT = 64;
/** A ping without an answer for this time counts as lost (ms). */
const LOST = 200;

export class DgramEnd {
  #socket!: Socket;
  #onMessage: (bytes: number) => void = () => {};
  /** Ends the work that is served. @returns its measurements */
  #stop: () => Part = () => ({ cpu: 0 });

  async open(local: string, peer: string, port: number): Promise<void> {
    this.#socket = createSocket({ type: 'udp4', recvBufferSize: 8 * 2 ** 20, sendBufferSize: 8 * 2 ** 20 });
    this.#socket.on('message', ({ length }) => this.#onMessage(length));
    this.#socket.on('error', () => {});
    this.#socket.bind(port, local);
    await once(this.#socket, 'listening');
    this.#socket.connect(port, peer);
    await once(this.#socket, 'connect');
  }

  async close(): Promise<void> {
    this.#socket.close();
  }

  /** Serves until `stop`. */
  serve(work: Work): void {
    const cpu = process.cpuUsage();
    const isEcho = work.kind === 'pingpong';
    const message = Buffer.alloc(work.size, 1);
    let watch: Stopwatch | undefined;
    let bytes = 0;
    this.#onMessage = (count) => {
      if (isEcho) return this.#socket.send(message);
      watch ??= new Stopwatch(work);
      bytes += count;
      watch.messages = bytes / work.size;
      watch.tick();
    };
    this.#stop = () => {
      watch?.tick();
      return watch ? watch.part() : { cpu: cpuSince(cpu) };
    };
  }

  stop(): Part {
    return this.#stop();
  }

  async run(work: Work): Promise<Part> {
    return work.kind === 'pingpong' ? this.#ping(work) : this.#flood(work);
  }

  /** Messages larger than a frame are sent as datagrams that fill a frame. */
  async #flood(work: Work): Promise<Part> {
    // It counts no message, as some are lost, and so lasts much longer than the window of the other end.
    const watch = new Stopwatch({ ...work, ms: work.ms + 50 });
    const message = Buffer.alloc(Math.min(work.size, work.mtu - HEADERS), 1);
    let flying = 0;
    await new Promise<void>((resolve) => {
      const more = () => {
        const isOver = watch.tick();
        while (!isOver && flying < IN_FLIGHT) {
          flying++;
          this.#socket.send(message, sent);
        }
        if (isOver && flying === 0) resolve();
      };
      const sent = () => {
        flying--;
        if (flying <= IN_FLIGHT / 2) more();
      };
      more();
    });
    return { cpu: watch.part().cpu };
  }

  async #ping(work: Work): Promise<Part> {
    const watch = new Stopwatch(work);
    const message = Buffer.alloc(work.size, 1);
    const times: number[] = [];
    let lost: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      let begin = performance.now();
      const ping = () => this.#socket.send(message);
      lost = setInterval(() => performance.now() - begin > LOST && ping(), LOST);
      this.#onMessage = () => {
        watch.messages++;
        const end = performance.now();
        if (watch.isMeasuring) times.push(end - begin);
        begin = end;
        if (watch.tick(end)) resolve();
        else ping();
      };
      ping();
    });
    clearInterval(lost);
    const { cpu } = watch.part();
    return { cpu, messages: watch.messages, latency: latencyOf(Float64Array.from(times)) };
  }
}
