/** NVMe over Fabrics in the virtual machine: Linux's host with fio, and a target that serves a file on tmpfs. */
import { LinuxHost, LinuxTarget } from '../../test/interop/guest/nvme.js';
import { installStorage } from '../../test/interop/guest/storage.js';
import { type GuestRig, RXE, RXE_TO_B } from '../rig/guest.js';
import { GUEST_FOLDER } from '../rig/guestimage.js';
import type { Program, Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';

const NQN = 'nqn.2026-01.com.example:bench';
const FILE = '/tmp/bench-disk';
const MIB = 64;

/** A target that Linux's host connects to. */
abstract class Target implements Contender {
  abstract readonly name: string;
  abstract readonly kind: Contender['kind'];
  readonly #host: LinuxHost;
  #isConnected = false;

  constructor(
    readonly rig: GuestRig,
    where: ConstructorParameters<typeof LinuxHost>[1],
  ) {
    this.#host = new LinuxHost(rig.guest, where);
  }

  takes(): boolean {
    return true;
  }

  async begin(_: Rig): Promise<void> {
    // after a measurement that failed
    if (this.#isConnected) await this.end();
    await installStorage(this.rig.guest);
    await this.rig.guest.run(`rm -f ${FILE} && truncate -s ${MIB}M ${FILE}`);
    await this.serve();
    await this.#host.connect(NQN, 1, '--nr-io-queues=1');
    this.#isConnected = true;
  }

  async measure({ kind, operation, size, warmMs, ms }: Work): Promise<Sample> {
    const options = {
      ...{ name: 'bench', filename: await this.#host.disk(1), direct: 1, ioengine: 'libaio' },
      ...{ rw: `rand${operation.toLowerCase()}`, bs: size, iodepth: DEPTHS[kind], time_based: 1 },
      ...{ ramp_time: `${warmMs}ms`, runtime: `${ms}ms`, percentile_list: '50:90:99:99.9', lat_percentiles: 1 },
    };
    const before = await this.rig.cpuSeconds();
    const printed = await this.#host.fio(options);
    const cpu = (await this.rig.cpuSeconds()) - before;
    return sampleOf(JSON.parse(printed).jobs[0][operation.toLowerCase()], cpu);
  }

  async end(): Promise<void> {
    if (this.#isConnected) await this.#host.disconnect(NQN);
    this.#isConnected = false;
    await this.unserve();
  }

  stop(): void {}

  protected abstract serve(): Promise<void>;
  protected abstract unserve(): Promise<void>;
}

/** Commands that fio has outstanding. */
const DEPTHS: Readonly<Record<Work['kind'], number>> = { pingpong: 1, rate: 32, bulk: 8 };

/** Our target at end b, which rxe in the initial namespace reaches. */
export class OurTarget extends Target {
  readonly name: string;
  readonly kind = 'ours';
  #program: Program | undefined;

  constructor(
    rig: GuestRig,
    readonly link: string,
  ) {
    super(rig, { address: RXE_TO_B.address });
    this.name = `nvme-target: ${link}, inline`;
  }

  protected async serve(): Promise<void> {
    const command = [this.rig.node, `${GUEST_FOLDER}/dist/cli/main.js`, 'nvme-target', '--json'];
    const words = ['--namespace', `disk=${FILE}`, '--nqn', NQN, '--link', this.link, '-d', RXE_TO_B.far];
    this.#program = this.rig.spawn('b', [...command, ...words]);
    for await (const line of this.#program.lines()) if (line.startsWith('{')) return;
    await this.#program.exited;
  }

  protected async unserve(): Promise<void> {
    this.#program?.kill();
    await this.#program?.exited.catch(() => {});
  }

  override stop(): void {
    this.#program?.kill();
  }
}

/** Linux's own target in the same guest, over rxe or over TCP. */
export class Nvmet extends Target {
  readonly name: string;
  readonly kind = 'beside';
  #target: LinuxTarget | undefined;

  constructor(
    rig: GuestRig,
    readonly transport: 'rdma' | 'tcp',
  ) {
    super(rig, { address: RXE.b.address, transport });
    this.name = transport === 'rdma' ? 'nvmet-rdma over rxe' : 'nvmet-tcp';
  }

  protected async serve(): Promise<void> {
    const { transport } = this;
    const options = { address: RXE.b.address, transport, namespaces: [FILE] };
    this.#target = await LinuxTarget.serve(this.rig.guest, NQN, options);
  }

  protected async unserve(): Promise<void> {
    await this.#target?.close();
    this.#target = undefined;
  }
}

/** The output of fio for the reads or the writes of a job. Times are in ns. */
interface FioSide {
  readonly iops: number;
  readonly bw_bytes: number;
  readonly total_ios: number;
  readonly io_bytes: number;
  readonly lat_ns: {
    readonly min: number;
    readonly max: number;
    readonly percentile: Readonly<Record<string, number>>;
  };
}

function sampleOf(
  { iops, bw_bytes: rate, total_ios: count, io_bytes: bytes, lat_ns: times }: FioSide,
  cpu: number,
): Sample {
  if (count === 0) throw new Error('fio did nothing');
  const at = (part: string) => (times.percentile[part] ?? Number.NaN) / 1000;
  const percentiles = { median: at('50.000000'), p90: at('90.000000'), p99: at('99.000000'), p999: at('99.900000') };
  return {
    messagesPerSecond: iops,
    gbps: (rate * 8) / 1e9,
    latency: { count, min: times.min / 1000, max: times.max / 1000, ...percentiles },
    cpuPerMessage: (cpu * 1e9) / count,
    cpuPerByte: (cpu * 1e9) / bytes,
  };
}
