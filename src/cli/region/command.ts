/** `wasm-roce get` and `wasm-roce put`: read and write regions of an endpoint. */
import { type Command, InvalidArgumentError } from 'commander';
import { EXIT_HELP, stopSignal, usageError } from '../exit.js';
import {
  addDeviceOptions,
  bytes,
  type DeviceFlags,
  deviceOptions,
  integer,
  openOptions,
  quantity,
} from '../options.js';
import { Output } from '../output.js';
import { get, put, type RegionOptions, type RegionPart } from './transfer.js';

interface Flags extends DeviceFlags {
  readonly port: number;
  readonly output?: string;
  readonly timeout: number;
  readonly json?: boolean;
}

/** Port of the service `regions`. */
const PORT = 7472;
const MAX_BYTES = 2 ** 32 - 1;

const REGION_HELP = `
REGION is the name of a region of the endpoint's configuration. NAME@OFFSET begins at that byte, NAME@OFFSET:LENGTH is
that part; numbers are bytes, with k, m or g for KiB, MiB or GiB.`;

export function regionCommands(program: Command): void {
  const getting = program
    .command('get')
    .summary('read a region of an endpoint')
    .description('Reads a region, or a part of it, by RDMA READ, and writes it to standard output or a file.')
    .option('-o, --output <file>', 'write to this file instead of standard output');
  addRegionOptions(getting)
    .addHelpText(
      'after',
      `${REGION_HELP}

Examples:
  wasm-roce get 192.0.2.7 table > copy
  wasm-roce get 192.0.2.7 table@4k:16 | xxd
  wasm-roce get 192.0.2.7 table -o copy --json
${EXIT_HELP}`,
    )
    .action((host: string, part: RegionPart, flags: Flags) => {
      if (flags.json && flags.output === undefined)
        throw usageError('--json needs -o FILE: the bytes go to standard output');
      return get(host, part, flags.output, read(flags), new Output(flags.json ?? false), stopSignal());
    });
  const putting = program
    .command('put')
    .summary('write to a region of an endpoint')
    .description(
      'Writes standard input or a file to a region, or to a part of it, by RDMA WRITE. Nothing is written if there are ' +
        'more bytes than fit; the rest of a longer region stays as it was.',
    );
  addRegionOptions(putting)
    .argument('[file]', 'file to read; default: standard input')
    .addHelpText(
      'after',
      `${REGION_HELP}

Examples:
  wasm-roce put 192.0.2.7 table < copy
  wasm-roce put 192.0.2.7 table@4k patch.bin
  echo -n hello | wasm-roce put 192.0.2.7 scratch@0:5 --json
${EXIT_HELP}`,
    )
    .action((host: string, part: RegionPart, file: string | undefined, flags: Flags) =>
      put(host, part, file, read(flags), new Output(flags.json ?? false), stopSignal()),
    );
}

function addRegionOptions(command: Command): Command {
  command
    .argument('<host>', 'address or name of the endpoint')
    .argument('<region[@offset[:length]]>', 'region, or a part of it', regionPart)
    .option('-p, --port <n>', "rdma_cm port of the endpoint's service regions", integer(1, 65535), PORT)
    .option('-w, --timeout <s>', 'give up when the endpoint is silent for this long', quantity(1e6, 0.001), 30)
    .option('--json', 'print a JSON object about the transfer');
  return addDeviceOptions(command);
}

function regionPart(text: string): RegionPart {
  const [, name, offset, length] = /^([\w.-]+)(?:@([^:]+)(?::(.+))?)?$/.exec(text) ?? [];
  if (name === undefined)
    throw new InvalidArgumentError('It must be REGION, REGION@OFFSET or REGION@OFFSET:LENGTH, such as table@4k:16.');
  return {
    name,
    offset: offset === undefined ? 0 : bytes(0, MAX_BYTES)(offset),
    ...(length !== undefined && { length: bytes(1, MAX_BYTES)(length) }),
  };
}

function read(flags: Flags): RegionOptions {
  if (flags.link === 'memory')
    throw usageError('--link memory is for both ends in one process; get and put need an endpoint');
  return {
    port: flags.port,
    timeoutMs: flags.timeout * 1000,
    open: openOptions(flags),
    ...deviceOptions(flags),
  };
}
