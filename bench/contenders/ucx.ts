/** RDMA operations over TCP, by UCX and its own ucx_perftest. */
import { lineLike, type Program, type Rig } from '../rig/program.js';
import type { Operation, Sample, Work } from '../work.js';
import type { Contender } from './contender.js';

const COMMAND = ['env', 'UCX_TLS=tcp,self', 'stdbuf', '-oL', 'ucx_perftest'];
const TESTS: Readonly<Record<Operation, string>> = { WRITE: 'ucp_put_bw', READ: 'ucp_get', SEND: 'tag_bw' };
/** Bytes of a measurement; it cannot be given a time. */
const BYTES = 2 ** 28;
/** The unit of its bandwidths. */
const MIB = 2 ** 20;

export class UcxPerftest implements Contender {
  readonly name = 'UCX (TCP)';
  readonly kind = 'beside';
  #rig!: Rig;

  /** Both ends poll. */
  takes({ kind, waiting, qps }: Work): boolean {
    return kind === 'bulk' && waiting === 'spin' && qps === 1;
  }

  async begin(rig: Rig): Promise<void> {
    this.#rig = rig;
    await rig.spawn('a', [...COMMAND, '-h']).exited;
  }

  async measure({ operation, size }: Work): Promise<Sample> {
    const { b } = this.#rig;
    const server = this.#rig.spawn('b', COMMAND);
    try {
      await lineLike(server, /^Waiting for connection/);
      const count = Math.ceil(BYTES / size);
      const words = ['-t', TESTS[operation], '-s', String(size), '-n', String(count), '-w', String(count >> 2)];
      const client = this.#rig.spawn('a', [...COMMAND, b.address, ...words, '-f', '-v']);
      const bandwidth = await overallBandwidth(client);
      await server.exited;
      const bytes = bandwidth * MIB;
      return { gbps: (bytes * 8) / 1e9, messagesPerSecond: bytes / size };
    } finally {
      server.kill();
    }
  }

  async end(): Promise<void> {}
  stop(): void {}
}

/** Reads the column `overall_bw`. */
async function overallBandwidth(client: Program): Promise<number> {
  const fields = (await lineLike(client, /^\s*\d+,/, 60_000)).split(',');
  await client.exited;
  const bandwidth = Number(fields[5]);
  if (!(bandwidth > 0)) throw new Error(`ucx_perftest printed ${fields}`);
  return bandwidth;
}
