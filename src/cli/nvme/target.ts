/** `wasm-roce nvme-target`: gives hosts files as disks over RDMA. */
import { once } from 'node:events';
import { type Command, InvalidArgumentError } from 'commander';
import { printable } from '../../base/printable.js';
import { createTarget, machineNqn, NVME_PORT, type NvmeTarget } from '../../nvme.js';
import { addressesOf, type DeviceOptions, openForService } from '../device.js';
import { EXIT_HELP, stopSignal, usageError } from '../exit.js';
import { addDeviceOptions, bytes, type DeviceFlags, deviceOptions, integer, openOptions } from '../options.js';
import { Output } from '../output.js';
import { type Disk, openDisks } from './disks.js';

interface Flags extends DeviceFlags {
  readonly listen: number;
  readonly nqn?: string;
  readonly namespace: readonly Disk[];
  readonly allow?: readonly string[];
  readonly memory: number;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

const MEMORY = 2 ** 28;
const sizeBytes = bytes(512, Number.MAX_SAFE_INTEGER);

const HELP = `
NAME=FILE[,size=BYTES][,block=512|4096][,ro] names a disk and the file or block device that has its bytes. With size a
file that is missing or shorter is made so long, sparsely. Hosts know a disk by the NQN and the name, so keep them.

Examples:
  wasm-roce nvme-target --namespace disk=disk.img,size=1G
  nvme discover -t rdma -a ADDRESS                         on another host
  nvme connect -t rdma -a ADDRESS -n NQN
${EXIT_HELP.replace('0 done', '0 stopped')}`;

export function targetCommand(program: Command): void {
  const command = program
    .command('nvme-target')
    .summary('serve files as disks by NVMe over RDMA')
    .description('Serves files to hosts of NVMe over RDMA (nvme connect -t rdma) as disks, until stopped.')
    .requiredOption('--namespace <name=file>', 'a disk; may be repeated', namespaceFlag, [])
    .option('--nqn <name>', 'name of the subsystem; default: one of this host, which is printed')
    .option('--allow <nqn>', 'a host that may connect; may be repeated; default: any', collect)
    .option(
      '--listen <port>',
      'port of rdma_cm to listen on; 0 = any free port, which is printed',
      integer(0, 65535),
      NVME_PORT,
    )
    .option('--memory <bytes>', "the card's memory", bytes(2 ** 25, 2 ** 32), MEMORY)
    .option('-q, --quiet', 'print only errors')
    .option('--json', 'print a JSON object when the target listens, and when a host is lost');
  addDeviceOptions(command)
    .addHelpText('after', HELP)
    .action((flags: Flags) => serve(flags));
}

async function serve(flags: Flags): Promise<void> {
  if (flags.link === 'memory') throw usageError('--link memory is for both ends in one process: no host could connect');
  if (flags.namespace.length === 0)
    throw usageError('--namespace is missing: name a disk, such as disk=disk.img,size=1G');
  const output = new Output(flags.json ?? false);
  const stop = stopSignal();
  const options: DeviceOptions = {
    open: { ...openOptions(flags), memoryBytes: flags.memory },
    ...deviceOptions(flags),
  };
  const namespaces = await openDisks(flags.namespace);
  await using device = await openForService(options);
  const { nqn = await machineNqn() } = flags;
  await using target: NvmeTarget = await createTarget({
    ...(device && { device }),
    port: flags.listen,
    subsystems: [{ nqn, namespaces, ...(flags.allow && { hosts: flags.allow }) }],
    onError: ({ message }, host) => {
      if (flags.quiet) return;
      output.note(`${host.address} (${printable(host.nqn ?? 'no controller')}): ${printable(message)}`);
      output.result({ host, error: message });
    },
  });
  const addresses = addressesOf(device);
  const [local] = addresses;
  if (!flags.quiet) output.note(`serving ${nqn} on ${addresses.join(', ')} port ${target.port}`);
  output.result({
    address: local,
    addresses,
    port: target.port,
    nqn,
    namespaces: namespaces.map(({ name, storage }, i) => ({ nsid: i + 1, name, bytes: storage.bytes })),
  });
  if (!stop.aborted) await once(stop, 'abort');
}

/** Parses NAME=FILE[,size=BYTES][,block=BYTES][,ro], and adds it to those before. */
function namespaceFlag(text: string, before: readonly Disk[]): Disk[] {
  const [, name, file, rest] = /^([^=,]+)=([^,]+)((?:,[^,]+)*)$/.exec(text) ?? [];
  if (name === undefined || file === undefined)
    throw new InvalidArgumentError('It must be NAME=FILE, perhaps with ,size=1G ,block=4096 or ,ro.');
  if (before.some((other) => other.name === name)) throw new InvalidArgumentError(`There are two disks ${name}.`);
  let disk: Disk = { name, file };
  for (const word of (rest ?? '').split(',').filter(Boolean)) {
    const [key, value = ''] = word.split('=');
    if (key === 'size') disk = { ...disk, size: sizeBytes(value) };
    else if (word === 'block=512' || word === 'block=4096') disk = { ...disk, blockBytes: Number(value) };
    else if (word === 'ro') disk = { ...disk, readOnly: true };
    else throw new InvalidArgumentError(`${word} must be size=BYTES, block=512, block=4096 or ro.`);
  }
  return [...before, disk];
}

const collect = (value: string, before: readonly string[] = []) => [...before, value];
