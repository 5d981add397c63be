/** What Node itself has: streams (`net`) and datagrams (`dgram`). They wait in the event loop; there is no other way. */
import { PartyProcess } from '../rig/party.js';
import type { Rig } from '../rig/program.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

const FIRST_PORT = 7000;

abstract class NodeContender implements Contender {
  readonly kind = 'beside';
  abstract readonly name: string;
  protected abstract readonly party: string;
  protected ends: readonly PartyProcess[] = [];
  protected port = FIRST_PORT;

  takes({ operation, waiting, qps }: Work): boolean {
    return operation === 'SEND' && waiting === 'sleep' && qps === 1;
  }

  async begin(rig: Rig): Promise<void> {
    if (this.ends.length === 0)
      this.ends = [PartyProcess.start(rig, 'a', this.party), PartyProcess.start(rig, 'b', this.party)];
    this.port++;
    const [a, b] = this.ends as [PartyProcess, PartyProcess];
    await this.connect(rig, a, b);
  }

  protected abstract connect(rig: Rig, a: PartyProcess, b: PartyProcess): Promise<void>;

  async measure(work: Work): Promise<Sample> {
    const [a, b] = this.ends as [PartyProcess, PartyProcess];
    const serving = b.call<Part>('serve', work);
    const running = a.call<Part>('run', work).finally(() => b.call('stop'));
    return sampleOf(work, await Promise.all([running, serving]));
  }

  async end(): Promise<void> {
    await Promise.all(this.ends.map((end) => end.call('close')));
  }

  stop(): void {
    for (const end of this.ends) end.kill();
    this.ends = [];
  }
}

export class NodeNet extends NodeContender {
  readonly name = 'Node net';
  protected readonly party = 'net';

  protected async connect(rig: Rig, a: PartyProcess, b: PartyProcess): Promise<void> {
    await b.call('listen', rig.b.address, this.port);
    await a.call('connect', rig.b.address, this.port);
    await b.call('accepted');
  }
}

export class NodeDgram extends NodeContender {
  readonly name = 'Node dgram';
  protected readonly party = 'dgram';

  protected async connect(rig: Rig, a: PartyProcess, b: PartyProcess): Promise<void> {
    await Promise.all([
      a.call('open', rig.a.address, rig.b.address, this.port),
      b.call('open', rig.b.address, rig.a.address, this.port),
    ]);
  }
}
