/** Node's own sockets: streams (`net`) and datagrams (`dgram`). */
import type { Rig } from '../rig/program.js';
import type { WorkerProcess } from '../rig/worker.js';
import type { Work } from '../work.js';
import { connectEnds, connectReader, TwoEnds } from './ends.js';

const FIRST_PORT = 7000;

export class NodeNet extends TwoEnds {
  readonly kind = 'beside';
  readonly name = 'Node net';
  protected readonly worker = 'net';
  protected readonly connect = connectEnds;

  constructor() {
    super(FIRST_PORT);
  }
}

/** A client that reads by `onread` into memory of its own. */
export class NodeNetOnread extends TwoEnds {
  readonly kind = 'beside';
  readonly name = 'Node net, onread';
  protected readonly worker = 'netOnread';
  protected readonly connect = connectReader;

  constructor() {
    super(FIRST_PORT);
  }

  override takes(work: Work): boolean {
    return work.kind === 'bulk' && super.takes(work);
  }
}

export class NodeDgram extends TwoEnds {
  readonly kind = 'beside';
  readonly name = 'Node dgram';
  protected readonly worker = 'dgram';

  constructor() {
    super(FIRST_PORT);
  }

  protected async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    await Promise.all([
      a.call('open', rig.a.address, rig.b.address, port),
      b.call('open', rig.b.address, rig.a.address, port),
    ]);
  }
}
