/** Streams of this project: rsockets, and streams of connections, over one link in one mode. */
import type { Rig } from '../rig/program.js';
import type { WorkerProcess } from '../rig/worker.js';
import type { Work } from '../work.js';
import { connectEnds, connectReader, TwoEnds } from './ends.js';
import type { OursOptions } from './ours.js';

export type StreamWay = 'rsocket' | 'rsocketOnread' | 'stream';

const NAMES: Readonly<Record<StreamWay, string>> = {
  rsocket: 'rsocket',
  rsocketOnread: 'rsocket, onread',
  stream: 'stream',
};

const FIRST_PORT = 7500;

export class OurStreams extends TwoEnds {
  readonly kind = 'ours';
  readonly name: string;
  readonly link: string;
  protected readonly worker: StreamWay;

  constructor(
    way: StreamWay,
    readonly options: OursOptions,
  ) {
    super(FIRST_PORT);
    this.worker = way;
    this.link = options.link;
    this.name = `${NAMES[way]}: ${options.link}, ${options.mode}`;
  }

  override takes(work: Work): boolean {
    return super.takes(work) && (this.worker !== 'rsocketOnread' || work.kind === 'bulk');
  }

  protected async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    const { link, mode } = this.options;
    await a.call('open', { link, mode, interface: rig.a.interface });
    await b.call('open', { link, mode, interface: rig.b.interface });
    await (this.worker === 'rsocketOnread' ? connectReader : connectEnds)(rig, a, b, port);
  }
}
