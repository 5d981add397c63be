/** A contender with an end in each of two processes: one runs the work, the other one serves it. */
import type { EndName, Rig } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';
import { kindOf, nameOf, type OursOptions } from './ours.js';

export interface EndsOptions {
  /** Whether the program that reads is a client with the option `onread`, for bulk only. Default false. */
  readonly isOnread?: boolean;
  /** See OursOptions. */
  readonly programs?: string;
}

/** Sockets and streams: one connection, for which Node.js waits in the event loop only. */
export abstract class TwoEnds implements Contender {
  abstract readonly kind: Contender['kind'];
  abstract readonly name: string;
  /** Kind of the worker (workers/main.ts). */
  protected abstract readonly worker: string;
  readonly #options: EndsOptions;
  #ends: readonly WorkerProcess[] = [];
  #port: number;

  /** @param firstPort the port before that of the first connection; the next connection has the next one */
  protected constructor(firstPort: number, options: EndsOptions = {}) {
    this.#port = firstPort;
    this.#options = options;
  }

  takes({ kind, operation, waiting, qps }: Work): boolean {
    const fits = operation === 'SEND' && waiting === 'sleep' && qps === 1;
    return fits && (kind === 'bulk' || !this.#options.isOnread);
  }

  async begin(rig: Rig): Promise<void> {
    const start = (end: EndName) => WorkerProcess.start(rig, end, this.worker, this.#options.programs);
    if (this.#ends.length === 0) this.#ends = [start('a'), start('b')];
    const [a, b] = this.#ends as [WorkerProcess, WorkerProcess];
    try {
      await this.connect(rig, a, b, ++this.#port);
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  /** Connects the two ends. The one that reads is the server, unless it reads by `onread`. */
  protected async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    const [server, client] = this.#options.isOnread ? [a, b] : [b, a];
    const { address } = this.#options.isOnread ? rig.a : rig.b;
    await server.call('listen', address, port);
    await client.call('connect', address, port);
    await server.call('accepted');
  }

  /** @throws WorkerError, Error as `call`; the other end stops serving then */
  async measure(work: Work): Promise<Sample> {
    const [a, b] = this.#ends;
    if (a === undefined || b === undefined) throw new Error('the ends have not begun');
    await b.call('serve', work);
    const ran = await a.call<Part>('run', work).catch(async (error) => {
      await b.call('stop');
      throw error;
    });
    return sampleOf(work, [ran, await b.call<Part>('stop')]);
  }

  async end(): Promise<void> {
    await Promise.all(this.#ends.map((end) => end.call('close')));
  }

  stop(): void {
    for (const end of this.#ends) end.kill();
    this.#ends = [];
  }
}

/** Ends of this project, each with a device on the link and in the mode of the options. */
export abstract class OurEnds extends TwoEnds {
  readonly kind: Contender['kind'];
  readonly name: string;
  readonly link: string;
  readonly #open: Pick<OursOptions, 'link' | 'mode'>;

  /** @param manner begins the name */
  protected constructor(manner: string, firstPort: number, options: OursOptions, isOnread = false) {
    const { link, mode, programs } = options;
    super(firstPort, { isOnread, ...(programs !== undefined && { programs }) });
    this.kind = kindOf(options);
    this.name = `${manner}: ${nameOf(options)}`;
    this.link = link;
    this.#open = { link, mode };
  }

  protected override async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    await a.call('open', { ...this.#open, interface: rig.a.interface });
    await b.call('open', { ...this.#open, interface: rig.b.interface });
    await super.connect(rig, a, b, port);
  }
}
