/** `wasm-roce nvme`: lists the subsystems of a target of NVMe over RDMA, and tests a connection to one of them. */
import { type Command, InvalidArgumentError } from 'commander';
import { printable } from '../../base/printable.js';
import { connect, DISCOVERY_NQN, discover, NVME_PORT, type NvmeConnectOptions } from '../../nvme.js';
import { type DeviceOptions, openForHost } from '../device.js';
import { EXIT_HELP, failure, stopSignal, usageError } from '../exit.js';
import {
  addDeviceOptions,
  bytes,
  type DeviceFlags,
  deviceOptions,
  integer,
  openOptions,
  quantity,
} from '../options.js';
import { Output, sizeText } from '../output.js';
import { type NamespaceRun, readAtRandom, type TestOptions, writeAndCompare } from './test.js';

interface Flags extends DeviceFlags {
  readonly port: number;
  readonly hostNqn?: string;
  readonly json?: boolean;
}

interface TestFlags extends Flags {
  readonly ioQueues: number;
  readonly depth: number;
  readonly block: number;
  readonly seconds: number;
  readonly nsid?: number;
  readonly write?: number;
}

export function hostCommands(program: Command): void {
  const nvme = program
    .command('nvme')
    .summary('list and test the subsystems of a target of NVMe over RDMA')
    .description('Finds the subsystems of a target of NVMe over RDMA, and connects to one as a host does.')
    .helpCommand(false);
  const discovery = nvme
    .command('discover')
    .summary('list the subsystems of a target')
    .description('Lists the subsystems that a target names in its discovery log.')
    .argument('<host>', 'address or name of the target');
  addHostOptions(discovery)
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce nvme discover 192.0.2.7
  wasm-roce nvme discover 192.0.2.7 --json
${EXIT_HELP}`,
    )
    .action((host: string, flags: Flags) => runDiscover(host, flags));
  const test = nvme
    .command('connect-test')
    .summary('connect to a subsystem, list its namespaces and read them')
    .description(
      'Connects to a subsystem, lists its namespaces, and reads blocks at random places of each. With --write it ' +
        'writes to one namespace first, and compares what it reads.',
    )
    .argument('<host>', 'address or name of the target')
    .argument('<nqn>', 'NVMe qualified name of the subsystem, as nvme discover prints it')
    .option('--io-queues <n>', 'queues for reads and writes', integer(1, 128), 1)
    .option('--depth <n>', 'commands that are outstanding', integer(1, 1024), 32)
    .option('--block <bytes>', 'bytes of a command', bytes(512, 2 ** 30), 4096)
    .option('--seconds <s>', 'time for each namespace', quantity(86_400, 0.1), 2)
    .option('--nsid <n>', 'id of the only namespace to read', integer(1, 0xffff_fffe))
    .option(
      '--write <bytes>',
      'bytes to write to the namespace of --nsid first; they OVERWRITE its contents',
      writtenBytes,
    );
  addHostOptions(test)
    .addHelpText(
      'after',
      `
Examples:
  wasm-roce nvme connect-test 192.0.2.7 nqn.2026-01.com.example:disks
  wasm-roce nvme connect-test 192.0.2.7 NQN --depth 128 --block 128k --io-queues 2
  wasm-roce nvme connect-test 192.0.2.7 NQN --nsid 2 --write 64m       destroys what is in namespace 2
${EXIT_HELP}`,
    )
    .action((host: string, nqn: string, flags: TestFlags) => runTest(host, nqn, flags));
}

function addHostOptions(command: Command): Command {
  command
    .option('-p, --port <n>', 'port of rdma_cm of the target', integer(1, 65535), NVME_PORT)
    .option('--host-nqn <nqn>', 'NQN of this host, where the target admits only some; default: a random one')
    .option('--json', 'print a JSON object');
  return addDeviceOptions(command);
}

async function runDiscover(host: string, flags: Flags): Promise<void> {
  const output = new Output(flags.json ?? false);
  await using device = await openForHost(host, deviceOf(flags));
  const all = await discover({ device, host, ...hostOptions(flags) });
  const entries = all.filter(({ nqn }) => nqn !== DISCOVERY_NQN);
  for (const { nqn, address: at, port } of entries) output.line(`${printable(nqn)}  ${printable(at)}  port ${port}`);
  if (entries.length === 0) output.line('the target has no subsystem for this host');
  output.result(entries);
}

async function runTest(host: string, nqn: string, flags: TestFlags): Promise<void> {
  const { nsid, write, block, depth, seconds, ioQueues } = flags;
  if (write !== undefined && nsid === undefined)
    throw usageError('--write needs --nsid: the namespace whose contents are lost');
  const output = new Output(flags.json ?? false);
  const options: TestOptions = { block, depth, milliseconds: seconds * 1000, stop: stopSignal() };
  await using device = await openForHost(host, deviceOf(flags));
  await using controller = await connect({ device, host, nqn, ioQueues, ...hostOptions(flags) });
  const namespaces = controller.namespaces.filter((namespace) => nsid === undefined || namespace.nsid === nsid);
  if (nsid !== undefined && namespaces.length === 0) throw failure(`the subsystem has no namespace ${nsid}`);
  const wrong = namespaces.find(({ blockBytes, bytes: size }) => block % blockBytes !== 0 || block > size);
  if (wrong !== undefined)
    throw usageError(
      `--block is ${block}, must be a multiple of ${wrong.blockBytes} and at most ${wrong.bytes} for namespace ${wrong.nsid}`,
    );
  const [only] = namespaces;
  if (write !== undefined && only !== undefined && write > only.bytes)
    throw usageError(`--write is ${write}, must be at most ${only.bytes} for namespace ${only.nsid}`);
  const runs: NamespaceRun[] = [];
  for (const namespace of namespaces) {
    if (options.stop.aborted) break;
    const { nsid: id, bytes: size, blockBytes, isReadOnly } = namespace;
    output.line(`namespace ${id}: ${sizeText(size)}, blocks of ${blockBytes} bytes${isReadOnly ? ', read-only' : ''}`);
    if (write !== undefined) {
      await writeAndCompare(namespace, write, options);
      output.line(`  wrote ${sizeText(write)} and read the same`);
    }
    const run = await readAtRandom(namespace, options);
    runs.push(run);
    output.line(
      `  ${run.operations} reads of ${sizeText(block)}: ${run.operationsPerSecond}/s, ${run.mibPerSecond} MiB/s, ` +
        `median ${run.latency.median} us, p99 ${run.latency.p99} us`,
    );
  }
  output.result({ host, nqn, block, depth, ...(write !== undefined && { written: write }), namespaces: runs });
}

function deviceOf(flags: Flags): DeviceOptions {
  if (flags.link === 'memory') throw usageError('--link memory is for both ends in one process: there is no target');
  return { open: openOptions(flags), ...deviceOptions(flags) };
}

function hostOptions({ port, hostNqn }: Flags): Pick<NvmeConnectOptions, 'port' | 'hostNqn'> {
  return { port, ...(hostNqn !== undefined && { hostNqn }) };
}

function writtenBytes(text: string): number {
  const count = bytes(512, Number.MAX_SAFE_INTEGER)(text);
  if (count % 4096 !== 0) throw new InvalidArgumentError('It must be a multiple of 4096.');
  return count;
}
