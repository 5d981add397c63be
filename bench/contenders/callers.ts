/** Calls of a server: those of this project over one link in one mode, grpc-js, and a frame over Node's `net`. */
import type { Rig } from '../rig/program.js';
import type { WorkerProcess } from '../rig/worker.js';
import type { Work } from '../work.js';
import { connectEnds, TwoEnds } from './ends.js';
import type { OursOptions } from './ours.js';

const FIRST_PORT = 7700;

abstract class Callers extends TwoEnds {
  constructor() {
    super(FIRST_PORT);
  }

  override takes(work: Work): boolean {
    return super.takes(work) && work.kind !== 'bulk';
  }
}

export class OurCalls extends Callers {
  readonly kind = 'ours';
  readonly name: string;
  readonly link: string;

  /** @param worker `connectrpc`: by Connect over `rpc` */
  constructor(
    readonly options: OursOptions,
    protected readonly worker: 'rpc' | 'connectrpc',
  ) {
    super();
    this.link = options.link;
    this.name = `${worker}: ${options.link}, ${options.mode}`;
  }

  protected async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    const { link, mode } = this.options;
    await a.call('open', { link, mode, interface: rig.a.interface });
    await b.call('open', { link, mode, interface: rig.b.interface });
    await connectEnds(rig, a, b, port);
  }
}

export class GrpcCalls extends Callers {
  readonly kind = 'beside';
  readonly name = 'grpc-js';
  protected readonly worker = 'grpc';
  protected readonly connect = connectEnds;
}

export class NetCalls extends Callers {
  readonly kind = 'beside';
  readonly name = 'frames over Node net';
  protected readonly worker = 'netcalls';
  protected readonly connect = connectEnds;
}
