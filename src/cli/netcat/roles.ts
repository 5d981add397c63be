/** The end that waits and the end that calls. */
import type { Connection, ConnectionRequest, Device, Server } from '../../index.js';
import { type DeviceChoice, openNamed, openToward } from '../device.js';
import { CliError, Exit, failure, Stopped } from '../exit.js';
import type { Output } from '../output.js';
import { Meter } from './meter.js';
import { Pipe } from './pipe.js';
import { reportOf, summary } from './report.js';

export interface NetcatOptions extends DeviceChoice {
  /** Listening: goes on after a connection. */
  readonly keepOpen: boolean;
  /** How long to wait for a connection. Default: for ever. */
  readonly timeoutMs?: number;
  /** See `ConnectionOptions.keepAlive`. */
  readonly keepAliveMs: number;
  readonly progress: boolean;
  readonly quiet: boolean;
}

/** Larger messages are quicker: each is a request, an answer and two copies. */
const MESSAGE_BYTES = 65536;

export async function listen(port: number, options: NetcatOptions, output: Output, stop: AbortSignal): Promise<void> {
  using pipe = new Pipe();
  await using device = await openNamed(options);
  await using server = await device.listen({ port });
  const address = device.gids[device.chooseGid().index]?.address;
  if (!options.quiet) output.note(`listening on ${address} port ${server.address.port}`);
  do {
    const request = await next(server, options, stop);
    if (!options.keepOpen) await server.close();
    try {
      const connection = await request.accept(connectionOptions(options));
      await serve(connection, pipe, { role: 'listen', device, options, output, stop });
    } catch (error) {
      if (!options.keepOpen || error instanceof Stopped || pipe.isOutputGone) throw error;
      output.note(`${request.remoteAddress}: ${(error as Error).message}`);
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
  await using device = await toward(host, options);
  const { timeoutMs: timeout } = options;
  const connection = await device.connect({
    ...{ host, port, signal: stop, ...connectionOptions(options) },
    ...(timeout !== undefined && { timeout }),
  });
  await serve(connection, pipe, { role: 'connect', device, options, output, stop });
}

interface Circumstances {
  readonly role: 'listen' | 'connect';
  readonly device: Device;
  readonly options: NetcatOptions;
  readonly output: Output;
  readonly stop: AbortSignal;
}

/** One connection, from its beginning to its report. */
async function serve(connection: Connection, pipe: Pipe, about: Circumstances): Promise<void> {
  const { options, output, stop, device } = about;
  const meter = new Meter(output, options.progress);
  const before = device.counters();
  let error: unknown;
  try {
    await pipe.join(connection, { meter, stop, note: options.quiet ? () => {} : (text) => output.note(text) });
  } catch (caught) {
    error = caught;
  }
  meter.stop();
  const report = reportOf({ ...about, connection, meter, before, error });
  output.result(report);
  if (options.progress) output.note(summary(report));
  if (error === undefined) return;
  if (error instanceof Stopped) throw error;
  throw new CliError(Exit.FAILED, (error as Error).message, { cause: error, isReported: true });
}

function connectionOptions({ keepAliveMs: keepAlive }: NetcatOptions) {
  return { messageBytes: MESSAGE_BYTES, keepAlive };
}

async function next(server: Server, { timeoutMs }: NetcatOptions, stop: AbortSignal): Promise<ConnectionRequest> {
  try {
    const wait = { signal: stop, ...(timeoutMs !== undefined && { timeout: timeoutMs }) };
    return (await server.next(wait)) as ConnectionRequest;
  } catch (cause) {
    if ((cause as { code?: unknown }).code !== 'ETIMEDOUT') throw cause;
    throw failure(`nobody connected within ${(timeoutMs as number) / 1000} s (--timeout)`, { cause });
  }
}

async function toward(host: string, options: NetcatOptions): Promise<Device> {
  try {
    return await openToward(host, options);
  } catch (cause) {
    const { code, syscall, message } = cause as NodeJS.ErrnoException;
    if (syscall === undefined) throw cause;
    const why = code === 'ENOTFOUND' ? `no address is known for '${host}'` : `there is no way to ${host}: ${message}`;
    throw failure(why, { cause });
  }
}
