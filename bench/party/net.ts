/** One end of Node's `net`: a stream over TCP. The message is nothing but so many bytes of it. */

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { latencyOf } from '../rig/stats.js';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';
import { Stopwatch } from './stopwatch.js';

export class NetEnd {
  #socket!: Socket;
  #accepted: Promise<unknown> = Promise.resolve();
  #onData: (bytes: number) => void = () => {};
  #stop = () => {};

  async listen(address: string, port: number): Promise<void> {
    const server = createServer();
    this.#accepted = once(server, 'connection').then(([socket]) => {
      server.close();
      this.#use(socket);
    });
    server.listen(port, address);
    await once(server, 'listening');
  }

  async connect(address: string, port: number): Promise<void> {
    this.#use(connect(port, address));
    await once(this.#socket, 'connect');
  }

  async accepted(): Promise<void> {
    await this.#accepted;
  }

  async close(): Promise<void> {
    this.#socket.destroy();
  }

  #use(socket: Socket): void {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', ({ length }) => this.#onData(length));
    socket.on('error', () => {});
  }

  async run(work: Work): Promise<Part> {
    return work.kind === 'pingpong' ? this.#ping(work) : this.#write(work);
  }

  /** Serves until `stop`. */
  async serve(work: Work): Promise<Part> {
    const { kind, size } = work;
    const isEcho = kind === 'pingpong';
    const message = Buffer.alloc(size, 1);
    const cpu = process.cpuUsage();
    let watch: Stopwatch | undefined;
    let bytes = 0;
    this.#onData = (count) => {
      bytes += count;
      if (isEcho) {
        for (; bytes >= size; bytes -= size) this.#socket.write(message);
      } else {
        watch ??= new Stopwatch(work);
        watch.messages = bytes / size;
        watch.tick();
      }
    };
    await new Promise<void>((resolve) => {
      this.#stop = resolve;
    });
    watch?.tick();
    return watch ? watch.part() : { cpu: cpuSince(cpu) };
  }

  stop(): void {
    this.#stop();
  }

  async #write(work: Work): Promise<Part> {
    // A little longer, so that the other end's window is full.
    const watch = new Stopwatch({ ...work, ms: work.ms + 50 });
    const message = Buffer.alloc(work.size, 1);
    while (!watch.tick()) if (!this.#socket.write(message)) await once(this.#socket, 'drain');
    while (this.#socket.writableLength > 0) await once(this.#socket, 'drain');
    return { cpu: watch.part().cpu };
  }

  async #ping(work: Work): Promise<Part> {
    const { size } = work;
    const watch = new Stopwatch(work);
    const message = Buffer.alloc(size, 1);
    const times: number[] = [];
    await new Promise<void>((resolve) => {
      let begin = performance.now();
      let bytes = 0;
      this.#onData = (count) => {
        bytes += count;
        if (bytes < size) return;
        bytes = 0;
        watch.messages++;
        const end = performance.now();
        if (watch.isMeasuring) times.push(end - begin);
        begin = end;
        if (watch.tick(end)) resolve();
        else this.#socket.write(message);
      };
      this.#socket.write(message);
    });
    const { cpu } = watch.part();
    return { cpu, messages: watch.messages, latency: latencyOf(Float64Array.from(times)) };
  }
}
