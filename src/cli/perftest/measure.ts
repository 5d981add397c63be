/** One test with one peer, and what is told of it. */
import type { CmAddress, Device } from '../../index.js';
import { failure } from '../exit.js';
import type { Output } from '../output.js';
import type { Exchange } from './handshake.js';
import type { PerftestOptions } from './kinds.js';
import { missed, reportOf, Table } from './report.js';
import { type Listeners, type Result, runSession } from './session.js';

/**
 * @param peer as of `runSession`
 * @throws CliError as `tell`
 */
export async function measure(
  device: Device,
  exchange: Exchange,
  options: PerftestOptions,
  output: Output,
  peer: CmAddress,
): Promise<void> {
  const result = await runWithTable(device, exchange, options, output, peer);
  tell(device, exchange.role, options, output, result);
}

/** @param peer as of `runSession` */
export function runWithTable(
  device: Device,
  exchange: Exchange,
  options: PerftestOptions,
  output: Output,
  peer: CmAddress,
): Promise<Result> {
  const table = new Table(options, output);
  const listeners: Listeners = {
    onConnected: (local, remote, terms) => table.header(device, local, remote, terms),
    onInterval: table.bandwidth.bind(table),
    onBandwidth: table.bandwidth.bind(table),
    onLatency: table.latency.bind(table),
  };
  return runSession(device, exchange, options, peer, listeners, output);
}

/** @throws CliError when messages were lost, or a limit was missed */
export function tell(
  device: Device,
  role: Exchange['role'],
  options: PerftestOptions,
  output: Output,
  result: Result,
): void {
  const report = reportOf(device, role, options, result);
  output.result(report);
  new Table(options, output).end(report);
  const reason = missed(options, result);
  if (reason !== undefined) throw failure(reason, { isReported: true });
}
