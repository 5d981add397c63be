/** Calls of a server: those of this project over one link in one mode, grpc-js, and a frame over Node's `net`. */
import type { Work } from '../work.js';
import { OurEnds, TwoEnds } from './ends.js';
import type { OursOptions } from './ours.js';

const FIRST_PORT = 7700;

const isOfCalls = ({ kind }: Work) => kind !== 'bulk';

abstract class Callers extends TwoEnds {
  readonly kind = 'beside';

  constructor() {
    super(FIRST_PORT);
  }

  override takes(work: Work): boolean {
    return super.takes(work) && isOfCalls(work);
  }
}

export class OurCalls extends OurEnds {
  /** @param worker `connectrpc`: by Connect over `rpc` */
  constructor(
    options: OursOptions,
    protected readonly worker: 'rpc' | 'connectrpc',
  ) {
    super(worker, FIRST_PORT, options);
  }

  override takes(work: Work): boolean {
    return super.takes(work) && isOfCalls(work);
  }
}

export class GrpcCalls extends Callers {
  readonly name = 'grpc-js';
  protected readonly worker = 'grpc';
}

export class NetCalls extends Callers {
  readonly name = 'frames over Node net';
  protected readonly worker = 'netcalls';
}
