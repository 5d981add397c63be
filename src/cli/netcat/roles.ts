/** The listening end and the connecting end. */
import { AsyncQueue } from '../../base/asyncqueue.js';
import type { DeviceUse } from '../../deviceuse.js';
import { onEachDevice, type ServiceOnDevices } from '../../eachdevice.js';
import type { Device, WaitOptions } from '../../index.js';
import { addressesOf, type DeviceOptions, openForHost, openForService } from '../device.js';
import { CliError, Exit, failure, Stopped } from '../exit.js';
import type { Output } from '../output.js';
import {
  type Caller,
  type Channel,
  type Channels,
  connectionChannels,
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
  await using own = await openForService(options);
  await using callers = await Callers.listen(own, port, options);
  if (!options.quiet) output.note(`listening on ${addressesOf(own).join(', ')} port ${callers.port}`);
  do {
    const { caller, use } = await nextCaller(callers, options, stop);
    try {
      if (!options.keepOpen) await callers.close();
      await serve(await caller.accept(), pipe, { role: 'listen', device: use.device, options, output, stop });
    } catch (error) {
      if (!options.keepOpen || error instanceof Stopped || pipe.isOutputGone) throw error;
      output.note(`${caller.remoteAddress}: ${(error as Error).message}`);
    } finally {
      await use.close();
    }
  } while (options.keepOpen && !pipe.isOutputGone);
}

/** A client, with a use of the device by which it has come. */
interface Arrival {
  readonly caller: Caller;
  readonly use: DeviceUse;
}

/** The clients that wait, of all devices. */
class Callers implements AsyncDisposable {
  readonly #waiting = new AsyncQueue<Arrival>();
  #devices: ServiceOnDevices | undefined;

  private constructor() {}

  /** @param device the only one; undefined: all interfaces @throws as `onEachDevice` */
  static async listen(device: Device | undefined, port: number, options: NetcatOptions): Promise<Callers> {
    const callers = new Callers();
    callers.#devices = await onEachDevice(device, { port }, (use, at) =>
      channelsOf(options).listen(use.device, at.port, {
        onCaller: (caller) => callers.#waiting.put({ caller, use: use.share() }),
        onFailure: (error) => callers.#waiting.end(() => error),
      }),
    );
    return callers;
  }

  get port(): number {
    return this.#devices?.port as number;
  }

  /** @throws VerbsError ETIMEDOUT; the reason of the signal */
  next(wait: WaitOptions): Promise<Arrival> {
    return this.#waiting.take(wait, 'no client has connected');
  }

  /** Takes no more clients, and refuses those that wait. Devices stay open for the clients that were taken. */
  async close(): Promise<void> {
    await this.#devices?.close();
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      await next.caller.refuse().catch(() => {});
      await next.use.close();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
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

async function nextCaller(callers: Callers, { timeoutMs }: NetcatOptions, stop: AbortSignal): Promise<Arrival> {
  try {
    return await callers.next({ signal: stop, ...(timeoutMs !== undefined && { timeout: timeoutMs }) });
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
