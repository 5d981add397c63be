/** One test with one peer, and what is told of it. */
import type { CmAddress, Device } from '../../index.js';
import { failure } from '../exit.js';
import type { Output } from '../output.js';
import type { Exchange } from './handshake.js';
import type { PerftestOptions } from './kinds.js';
import { missed, reportOf, Table } from './report.js';
import { type Listeners, runSession } from './session.js';

/**
 * @param peer as of `runSession`
 * @throws CliError when a limit was missed
 */
export async function measure(
  device: Device,
  exchange: Exchange,
  options: PerftestOptions,
  output: Output,
  peer: CmAddress,
): Promise<void> {
  const table = new Table(options, output);
  const listeners: Listeners = {
    onConnected: (local, remote, terms) => table.header(device, local, remote, terms),
    onInterval: table.bandwidth.bind(table),
    onBandwidth: table.bandwidth.bind(table),
    onLatency: table.latency.bind(table),
  };
  const result = await runSession(device, exchange, options, peer, listeners, output);
  const report = reportOf(device, exchange.role, options, result);
  output.result(report);
  table.end(report);
  const reason = missed(options, result.bandwidths);
  if (reason !== undefined) throw failure(reason, { isReported: true });
}
