/** `wasm-roce valkey-proxy`: makes a server of Valkey or Redis that is reached over TCP reachable over RDMA. */
import { once } from 'node:events';
import type { Command } from 'commander';
import { createProxy, VALKEY_PORT, type ValkeyProxy } from '../valkey.js';
import { addressesOf, type DeviceOptions, openForService } from './device.js';
import { EXIT_HELP, stopSignal, usageError } from './exit.js';
import {
  addDeviceOptions,
  bytes,
  type DeviceFlags,
  deviceOptions,
  type HostPort,
  hostPort,
  integer,
  openOptions,
} from './options.js';
import { Output } from './output.js';

interface Flags extends DeviceFlags {
  readonly listen: number;
  readonly to: HostPort;
  readonly memory: number;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

const MEMORY = 2 ** 29;

const HELP = `
Each client over RDMA gets a connection of its own to the server. A client takes 2 MiB of the card's memory.

Examples:
  wasm-roce valkey-proxy                              the server is on this host, port ${VALKEY_PORT}
  wasm-roce valkey-proxy --listen 7000 --to cache.example:6380
  valkey-cli --rdma -h HOST                           a client, of Valkey 9, on another host
${EXIT_HELP.replace('0 done', '0 stopped')}`;

export function valkeyCommand(program: Command): void {
  const command = program
    .command('valkey-proxy')
    .summary('serve clients of Valkey over RDMA from a server over TCP')
    .description(
      'Listens for clients of Valkey over RDMA (valkey-cli --rdma, libvalkey), and connects each of them to a server ' +
        'of Valkey or Redis over TCP, until stopped.',
    )
    .option(
      '--listen <port>',
      'port of rdma_cm to listen on; 0 = any free port, which is printed',
      integer(0, 65535),
      VALKEY_PORT,
    )
    .option('--to <host:port>', 'the server', hostPort, { host: '127.0.0.1', port: VALKEY_PORT })
    .option('--memory <bytes>', "the card's memory", bytes(2 ** 23, 2 ** 32), MEMORY)
    .option('-q, --quiet', 'print only errors')
    .option('--json', 'print a JSON object when the proxy listens, and when a server cannot be reached');
  addDeviceOptions(command)
    .addHelpText('after', HELP)
    .action((flags: Flags) => proxy(flags));
}

async function proxy(flags: Flags): Promise<void> {
  if (flags.link === 'memory')
    throw usageError('--link memory is for both ends in one process: no client could connect');
  const output = new Output(flags.json ?? false);
  const stop = stopSignal();
  const options: DeviceOptions = {
    open: { ...openOptions(flags), memoryBytes: flags.memory },
    ...deviceOptions(flags),
  };
  await using device = await openForService(options);
  const { to } = flags;
  await using running: ValkeyProxy = await createProxy({
    ...(device && { device }),
    port: flags.listen,
    to,
    onError: (error, client) => {
      if (flags.quiet) return;
      const { message } = error;
      output.note(`${client.remoteAddress}: ${to.host} port ${to.port}: ${message}`);
      output.result({ client: client.remoteAddress, to, error: message });
    },
  });
  const addresses = addressesOf(device);
  const [local] = addresses;
  if (!flags.quiet)
    output.note(`listening on ${addresses.join(', ')} port ${running.port}, for ${to.host} port ${to.port}`);
  output.result({ address: local, addresses, port: running.port, to });
  if (!stop.aborted) await once(stop, 'abort');
}
