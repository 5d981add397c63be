/** One end of calls: each request comes back as the response. */
import { performance } from 'node:perf_hooks';
import { latencyOf } from '../rig/stats.js';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';
import type { CallWay } from './callways.js';
import { Stopwatch } from './stopwatch.js';
import type { DeviceOptions } from './ways.js';

/** Calls under way while the rate is measured. */
const WINDOW = 64;

export class CallEnd {
  readonly #way: CallWay;
  #cpu = process.cpuUsage();

  constructor(way: CallWay) {
    this.#way = way;
  }

  async open(options: DeviceOptions): Promise<void> {
    await this.#way.open?.(options);
  }

  async listen(address: string, port: number): Promise<void> {
    await this.#way.listen(address, port);
  }

  async connect(address: string, port: number): Promise<void> {
    await this.#way.connect(address, port);
  }

  async accepted(): Promise<void> {}

  async close(): Promise<void> {
    await this.#way.close();
  }

  serve(): void {
    this.#cpu = process.cpuUsage();
  }

  stop(): Part {
    return { cpu: cpuSince(this.#cpu) };
  }

  async run(work: Work): Promise<Part> {
    const request = Buffer.alloc(work.size, 1);
    const watch = new Stopwatch(work);
    const times: number[] = [];
    const isRate = work.kind === 'rate';
    const caller = async () => {
      for (let begin = performance.now(); !watch.tick(begin); ) {
        const { length } = await this.#way.call(request);
        if (length !== work.size) throw new Error(`a response has ${length} bytes`);
        watch.messages++;
        const end = performance.now();
        if (watch.isMeasuring && !isRate) times.push(end - begin);
        begin = end;
      }
    };
    await Promise.all(Array.from({ length: isRate ? WINDOW : 1 }, caller));
    if (isRate) return watch.part();
    const { cpu } = watch.part();
    return { cpu, messages: watch.messages, latency: latencyOf(Float64Array.from(times)) };
  }
}
