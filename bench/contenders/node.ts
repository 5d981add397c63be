/** Node's own sockets: streams (`net`) and datagrams (`dgram`). */
import type { Rig } from '../rig/program.js';
import type { WorkerProcess } from '../rig/worker.js';
import { connectEnds, TwoEnds } from './ends.js';

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
