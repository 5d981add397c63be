/** Node's own sockets: streams (`net`) and datagrams (`dgram`). */
import type { Rig } from '../rig/program.js';
import type { WorkerProcess } from '../rig/worker.js';
import { TwoEnds } from './ends.js';

const FIRST_PORT = 7000;

export class NodeNet extends TwoEnds {
  readonly kind = 'beside';
  readonly name: string;
  protected readonly worker: string;

  /** @param isOnread see TwoEnds */
  constructor(isOnread = false) {
    super(FIRST_PORT, { isOnread });
    this.name = isOnread ? 'Node net, onread' : 'Node net';
    this.worker = isOnread ? 'netOnread' : 'net';
  }
}

export class NodeDgram extends TwoEnds {
  readonly kind = 'beside';
  readonly name = 'Node dgram';
  protected readonly worker = 'dgram';

  constructor() {
    super(FIRST_PORT);
  }

  protected override async connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
    await Promise.all([
      a.call('open', rig.a.address, rig.b.address, port),
      b.call('open', rig.b.address, rig.a.address, port),
    ]);
  }
}
