/** Linux's ends of NVMe over RDMA in a guest: the host with nvme-cli and fio, and the target with configfs. */
import type { Guest } from './guest.js';

export type Transport = 'rdma' | 'tcp';

const PORT = '4420';
const PATIENCE = { timeout: 120_000 };

/** The job of fio for a disk: it writes at random places, then reads and checks all of it. */
export interface Workload {
  /** Bytes that each job writes. */
  readonly size: number;
  readonly jobs?: number;
  readonly depth?: number;
  readonly maxBlock?: string;
}

/** A host of NVMe over RDMA. */
export class LinuxHost {
  readonly #guest: Guest;
  readonly #where: readonly string[];

  /** @param address of the target */
  constructor(guest: Guest, { address, transport = 'rdma' }: { address: string; transport?: Transport }) {
    this.#guest = guest;
    this.#where = ['-t', transport, '-a', address, '-s', PORT];
  }

  /** Returns the discovery log in JSON. */
  async discover(): Promise<{ records: Record<string, string>[] }> {
    return JSON.parse(await this.#guest.run(['nvme', 'discover', ...this.#where, '-o', 'json'], PATIENCE));
  }

  /** Connects to a subsystem. @returns when its namespaces are there */
  async connect(nqn: string, namespaces: number, ...options: string[]): Promise<void> {
    await this.#guest.run(['nvme', 'connect', ...this.#where, '-n', nqn, ...options], PATIENCE);
    await this.untilNamespaces(namespaces);
  }

  async disconnect(nqn: string): Promise<void> {
    await this.#guest.run(['nvme', 'disconnect', '-n', nqn], PATIENCE);
  }

  /** Disconnects from all subsystems, also from one that is lost, which the host tries to reach for ten minutes. */
  async disconnectAll(): Promise<void> {
    if (!this.#guest.hasEnded) await this.#guest.cleanUp('nvme disconnect-all', 60_000);
  }

  /** Waits until the host has so many namespaces of all subsystems. */
  async untilNamespaces(count: number): Promise<void> {
    await this.#guest.run(`until [ $(${DISKS} | wc -l) = ${count} ]; do sleep 0.05; done`, PATIENCE);
  }

  /** Waits until the controller is in a state: live, connecting ... */
  async untilState(state: string): Promise<void> {
    const test = `grep -q ${state} /sys/class/nvme/nvme*/state`;
    await this.#guest.run(`until ${test}; do sleep 0.05; done`, PATIENCE);
  }

  /** Waits until the host has written so many bytes since it found its only disk. */
  async untilWritten(bytes: number): Promise<void> {
    // the seventh number: sectors of 512 bytes
    const test = `[ $(awk '{ n += $7 } END { print int(n) }' /sys/block/nvme?n?/stat) -ge ${bytes / 512} ]`;
    await this.#guest.run(`until ${test}; do sleep 0.02; done`, PATIENCE);
  }

  /** The block device of a namespace: the number in its name is no namespace id. */
  async disk(nsid: number): Promise<string> {
    return (await this.#guest.run(`${DISKS} | sed -n 's/^${nsid} //p'`)).trim();
  }

  /** Runs fio on a disk. @throws Error when it reads what it has not written, or a command fails */
  async verify(disk: string, { size, jobs = 1, depth = 32, maxBlock = '128k' }: Workload): Promise<void> {
    const block = (await this.#guest.run(['cat', `/sys/block/${disk.slice(5)}/queue/logical_block_size`])).trim();
    const options = {
      ...{ name: 'verify', filename: disk, direct: 1, ioengine: 'libaio', iodepth: depth },
      ...{ rw: 'randwrite', bsrange: `${block}-${maxBlock}`, size, numjobs: jobs, offset_increment: size },
      // two writes to one block that are under way at once may be carried out in any order
      ...{ serialize_overlap: 1, verify: 'crc32c', verify_fatal: 1, verify_dump: 0 },
    };
    await this.fio(options);
  }

  /** Runs a job of fio. @returns its report in JSON */
  fio(options: Readonly<Record<string, string | number>>): Promise<string> {
    const words = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
    return this.#guest.run(`cd /tmp && fio --output-format=json ${words.join(' ')}`, PATIENCE);
  }
}

/** Shell: the namespace id and the block device of each namespace. A path of a multipath device is hidden. */
const DISKS = `for b in /sys/block/nvme*; do
  [ -e $b/nsid ] && [ "$(cat $b/hidden)" = 0 ] && echo $(cat $b/nsid) /dev/\${b##*/}
done`;

const CONFIG = '/sys/kernel/config';
const NVMET = `${CONFIG}/nvmet`;
/** Shell: makes configfs available. */
const MOUNT = `[ -d ${NVMET} ] || mount -t configfs configfs ${CONFIG}`;

/** Options of a target. */
export interface LinuxTargetOptions {
  readonly address: string;
  readonly transport?: Transport;
  /** Paths of files and block devices, for namespaces 1, 2 ... */
  readonly namespaces: readonly string[];
}

/** A target of NVMe over Fabrics. */
export class LinuxTarget {
  readonly #guest: Guest;

  private constructor(
    guest: Guest,
    readonly nqn: string,
  ) {
    this.#guest = guest;
  }

  static async serve(guest: Guest, nqn: string, { address, transport = 'rdma', namespaces }: LinuxTargetOptions) {
    const subsystem = `${NVMET}/subsystems/${nqn}`;
    const served = namespaces.map(
      (path, i) => `
      mkdir ${subsystem}/namespaces/${i + 1}
      echo -n ${path} > ${subsystem}/namespaces/${i + 1}/device_path
      echo 1 > ${subsystem}/namespaces/${i + 1}/enable`,
    );
    const port = { addr_trtype: transport, addr_adrfam: 'ipv4', addr_traddr: address, addr_trsvcid: PORT };
    await guest.run(
      `set -e
      ${MOUNT}
      mkdir ${subsystem}
      echo 1 > ${subsystem}/attr_allow_any_host
      ${served.join('\n')}
      mkdir ${NVMET}/ports/1
      ${settings(`${NVMET}/ports/1`, port)}
      ln -s ${subsystem} ${NVMET}/ports/1/subsystems/`,
      PATIENCE,
    );
    return new LinuxTarget(guest, nqn);
  }

  /** Adds a namespace to the subsystem, or takes it away. */
  async enable(nsid: number, isEnabled: boolean): Promise<void> {
    const path = `${NVMET}/subsystems/${this.nqn}/namespaces/${nsid}/enable`;
    await this.#guest.run(`echo ${Number(isEnabled)} > ${path}`, PATIENCE);
  }

  /** Takes the subsystem away from the port: hosts are disconnected. */
  async unlink(): Promise<void> {
    await this.#guest.run(`rm ${NVMET}/ports/1/subsystems/${this.nqn}`, PATIENCE);
  }

  async close(): Promise<void> {
    const subsystem = `${NVMET}/subsystems/${this.nqn}`;
    await this.#guest.run(
      `rm -f ${NVMET}/ports/1/subsystems/*
      rmdir ${NVMET}/ports/1
      for n in ${subsystem}/namespaces/*; do echo 0 > $n/enable; rmdir $n; done
      rmdir ${subsystem}`,
      PATIENCE,
    );
  }
}

/** A disk in the memory of a guest, with blocks of 512 bytes. */
export class MemoryDisk implements AsyncDisposable {
  readonly path = '/dev/nullb0';
  static readonly #FOLDER = `${CONFIG}/nullb/nullb0`;

  static async create(guest: Guest, mib: number): Promise<MemoryDisk> {
    const disk = { size: mib, blocksize: 512, memory_backed: 1, discard: 1, power: 1 };
    await guest.run(`set -e\n${MOUNT}\nmkdir ${MemoryDisk.#FOLDER}\n${settings(MemoryDisk.#FOLDER, disk)}`, PATIENCE);
    return new MemoryDisk(guest);
  }

  private constructor(readonly guest: Guest) {}

  async [Symbol.asyncDispose](): Promise<void> {
    await this.guest.run(['rmdir', MemoryDisk.#FOLDER], PATIENCE);
  }
}

/** Shell: writes values to the files of a folder of configfs. */
const settings = (folder: string, values: object) =>
  Object.entries(values)
    .map(([name, value]) => `echo ${value} > ${folder}/${name}`)
    .join('\n');
