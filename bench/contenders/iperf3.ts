/** TCP without Node: iperf3 with one stream. */
import { lineLike, type Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';

interface Report {
  readonly error?: string;
  readonly end: {
    readonly sum_received: { readonly bits_per_second: number; readonly bytes: number; readonly seconds: number };
    readonly cpu_utilization_percent: { readonly host_total: number; readonly remote_total: number };
  };
}

export class Iperf3 implements Contender {
  readonly name: string;
  readonly kind = 'beside';
  #rig!: Rig;

  /** @param zerocopy whether it sends by sendfile (`-Z`) */
  constructor(readonly zerocopy = false) {
    this.name = zerocopy ? 'iperf3 -Z (TCP)' : 'iperf3 (TCP)';
  }

  takes({ kind, operation, waiting }: Work): boolean {
    return kind === 'bulk' && operation === 'SEND' && waiting === 'sleep';
  }

  async begin(rig: Rig): Promise<void> {
    this.#rig = rig;
    const version = rig.spawn('a', ['iperf3', '--version']);
    await version.exited;
  }

  async measure(work: Work): Promise<Sample> {
    const { b, spawn } = bound(this.#rig);
    const server = spawn('b', ['iperf3', '-s', '-1', '--forceflush', '-B', b.address]);
    try {
      await lineLike(server, /listening/);
      // One second is the shortest time that iperf3 accepts.
      const options = ['-J', '-t', '1', '-l', String(work.size), ...(this.zerocopy ? ['-Z'] : [])];
      const client = spawn('a', ['iperf3', '-c', b.address, ...options]);
      let text = '';
      for await (const line of client.lines()) text += line;
      await client.exited;
      return sample(work, JSON.parse(text));
    } finally {
      server.kill();
      await server.exited;
    }
  }

  async end(): Promise<void> {}
  stop(): void {}
}

function bound(rig: Rig): Pick<Rig, 'b' | 'spawn'> {
  return { b: rig.b, spawn: rig.spawn.bind(rig) };
}

function sample({ size }: Work, { error, end }: Report): Sample {
  if (error) throw new Error(`iperf3: ${error}`);
  const { bits_per_second, bytes, seconds } = end.sum_received;
  const { host_total, remote_total } = end.cpu_utilization_percent;
  const cpuPerByte = ((host_total + remote_total) / 100) * ((seconds * 1e9) / bytes);
  return {
    gbps: bits_per_second / 1e9,
    messagesPerSecond: bits_per_second / 8 / size,
    cpuPerByte,
    cpuPerMessage: cpuPerByte * size,
  };
}
