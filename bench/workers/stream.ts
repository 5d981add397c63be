/** One end of a stream, in which a message is a fixed number of bytes. */

import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import { latencyOf } from '../rig/stats.js';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';
import { Stopwatch } from './stopwatch.js';
import type { DeviceOptions, Way } from './ways.js';

/** Bytes of messages, and those of the last one of a measurement. */
const [USUAL, LAST] = [1, 2];

export class StreamEnd {
  readonly #way: Way;
  #stream!: Duplex;
  #accepted: Promise<void> = Promise.resolve();
  #onData: (data: Buffer) => void = () => {};
  /** Ends the work that is served. @returns its measurements */
  #stop: () => Part = () => ({ cpu: 0 });

  constructor(way: Way) {
    this.#way = way;
  }

  /** Opens the device that streams need, but for those of TCP. */
  async open(options: DeviceOptions): Promise<void> {
    await this.#way.open?.(options);
  }

  async listen(address: string, port: number): Promise<void> {
    const { stream } = await this.#way.listen(address, port);
    this.#accepted = stream.then((accepted) => this.#use(accepted));
  }

  async connect(address: string, port: number): Promise<void> {
    this.#use(await this.#way.connect(address, port, (data) => this.#onData(data)));
  }

  async accepted(): Promise<void> {
    await this.#accepted;
  }

  async close(): Promise<void> {
    this.#stream.destroy();
    await this.#way.close?.();
  }

  #use(stream: Duplex): void {
    this.#stream = stream;
    stream.on('data', (data) => this.#onData(data));
    stream.on('error', () => {});
  }

  async run(work: Work): Promise<Part> {
    return work.kind === 'pingpong' ? this.#ping(work) : this.#write(work);
  }

  /** Serves until `stop`. */
  serve(work: Work): void {
    const { kind, size } = work;
    const isEcho = kind === 'pingpong';
    const message = Buffer.alloc(size, USUAL);
    const cpu = process.cpuUsage();
    let watch: Stopwatch | undefined;
    let bytes = 0;
    this.#onData = (data) => {
      bytes += data.length;
      if (isEcho) {
        for (; bytes >= size; bytes -= size) this.#stream.write(message);
      } else {
        watch ??= new Stopwatch(work);
        watch.messages = bytes / size;
        watch.tick();
        if (data.at(-1) === LAST) this.#stream.write(Buffer.of(LAST));
      }
    };
    this.#stop = () => {
      watch?.tick();
      return watch ? watch.part() : { cpu: cpuSince(cpu) };
    };
  }

  stop(): Part {
    return this.#stop();
  }

  async #write(work: Work): Promise<Part> {
    // Longer than the window of the other end, which begins with the first data.
    const watch = new Stopwatch({ ...work, ms: work.ms + 200 });
    const message = Buffer.alloc(work.size, USUAL);
    for (; !watch.tick(); watch.messages++) if (!this.#stream.write(message)) await once(this.#stream, 'drain');
    // what follows on this stream finds nothing of this one in flight
    await new Promise<void>((resolve) => {
      this.#onData = () => resolve();
      this.#stream.write(Buffer.alloc(work.size, LAST));
    });
    return { cpu: watch.part().cpu };
  }

  async #ping(work: Work): Promise<Part> {
    const { size } = work;
    const watch = new Stopwatch(work);
    const message = Buffer.alloc(size, USUAL);
    const times: number[] = [];
    await new Promise<void>((resolve) => {
      let begin = performance.now();
      let bytes = 0;
      this.#onData = ({ length }) => {
        bytes += length;
        if (bytes < size) return;
        bytes -= size;
        watch.messages++;
        const end = performance.now();
        if (watch.isMeasuring) times.push(end - begin);
        begin = end;
        if (watch.tick(end)) resolve();
        else this.#stream.write(message);
      };
      this.#stream.write(message);
    });
    const { cpu } = watch.part();
    return { cpu, messages: watch.messages, latency: latencyOf(Float64Array.from(times)) };
  }
}
