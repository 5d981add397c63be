/** The listening end and the connecting end. */
import type { Device } from '../../index.js';
import { type DeviceOptions, openForHost, openNamed } from '../device.js';
import { CliError, Exit, failure, Stopped } from '../exit.js';
import type { Output } from '../output.js';
import {
  type Caller,
  type Channel,
  type Channels,
  connectionChannels,
  type Listener,
  rsocketChannels,
  type WatchOptions,
} from './channels.js';
import { Meter } from './meter.js';
import { Pipe } from './pipe.js';
import { reportOf, summary } from './report.js';

export interface NetcatOptions extends DeviceOptions {
  /** Listening end: keep listening after a connection ends. */
  readonly keepOpen: boolean;
  /** Time to wait for a connection, milliseconds. Default: no limit. */
  readonly timeoutMs?: number;
  /** See `ConnectionOptions`. */
  readonly watch: WatchOptions;
  /** Whether the other end speaks rsockets. */
  readonly rsocket: boolean;
  readonly progress: boolean;
  readonly quiet: boolean;
}

const channelsOf = ({ rsocket, watch }: NetcatOptions): Channels =>
  rsocket ? rsocketChannels(watch) : connectionChannels(watch);

export async function listen(port: number, options: NetcatOptions, output: Output, stop: AbortSignal): Promise<void> {
  using pipe = new Pipe();
  await using device = await openNamed(options);
  await using server = await channelsOf(options).listen(device, port);
  const address = device.gids[device.chooseGid().index]?.address;
  if (!options.quiet) output.note(`listening on ${address} port ${server.port}`);
  do {
    const caller = await nextCaller(server, options, stop);
    if (!options.keepOpen) await server.close();
    try {
      await serve(await caller.accept(), pipe, { role: 'listen', device, options, output, stop });
    } catch (error) {
      if (!options.keepOpen || error instanceof Stopped || pipe.isOutputGone) throw error;
      output.note(`${caller.remoteAddress}: ${(error as Error).message}`);
    }
  } while (options.keepOpen && !pipe.isOutputGone);
}

export async function connect(
  host: string,
  port: number,
  options: NetcatOptions,
  output: Output,
  stop: AbortSignal,
): Promise<void> {
  using pipe = new Pipe();
  await using device = await openDevice(host, options);
  const { timeoutMs: timeout } = options;
  if (!options.quiet) output.progress(() => `connecting to ${host} port ${port} ...`);
  const wait = { signal: stop, ...(timeout !== undefined && { timeout }) };
  const channel = await channelsOf(options).connect(device, host, port, wait);
  await serve(channel, pipe, { role: 'connect', device, options, output, stop });
}

interface ServeOptions {
  readonly role: 'listen' | 'connect';
  readonly device: Device;
  readonly options: NetcatOptions;
  readonly output: Output;
  readonly stop: AbortSignal;
}

/** Serves one connection and prints its report. */
async function serve(channel: Channel, pipe: Pipe, serveOptions: ServeOptions): Promise<void> {
  const { options, output, stop, device } = serveOptions;
  const meter = new Meter(output, options.progress);
  const before = device.counters();
  let error: unknown;
  try {
    await pipe.join(channel, { meter, stop, note: options.quiet ? () => {} : (text) => output.note(text) });
  } catch (caught) {
    error = caught;
  }
  meter.stop();
  const report = reportOf({ ...serveOptions, channel, meter, before, error });
  output.result(report);
  if (options.progress) output.note(summary(report));
  if (error === undefined) return;
  if (error instanceof Stopped) throw error;
  throw new CliError(Exit.FAILED, (error as Error).message, { cause: error, isReported: true });
}

async function nextCaller(server: Listener, { timeoutMs }: NetcatOptions, stop: AbortSignal): Promise<Caller> {
  try {
    return await server.next({ signal: stop, ...(timeoutMs !== undefined && { timeout: timeoutMs }) });
  } catch (cause) {
    if ((cause as { code?: unknown }).code !== 'ETIMEDOUT') throw cause;
    throw failure(`nobody connected within ${(timeoutMs as number) / 1000} s (--timeout)`, { cause });
  }
}

async function openDevice(host: string, options: NetcatOptions): Promise<Device> {
  try {
    return await openForHost(host, options);
  } catch (cause) {
    const { code, syscall, message } = cause as NodeJS.ErrnoException;
    if (syscall === undefined || syscall === 'openDevice') throw cause;
    const why = code === 'ENOTFOUND' ? `no address is known for '${host}'` : `${host} cannot be reached: ${message}`;
    throw failure(why, { cause });
  }
}
