/** Runs one test with one peer, and prints its report. */
import type { CmAddress, Device } from '../../index.js';
import { failure } from '../exit.js';
import type { Output } from '../output.js';
import type { Handshake } from './communication/handshake.js';
import type { PerftestOptions } from './parameters.js';
import { failureReason, reportOf, Table } from './report.js';
import { runSession, type SessionListeners, type TestResult } from './session.js';

/**
 * Runs a test and prints its report.
 * @param peer as of `runSession`
 * @throws CliError as `runSession` and `printResult`
 */
export async function measure(
  device: Device,
  handshake: Handshake,
  options: PerftestOptions,
  output: Output,
  peer: CmAddress,
): Promise<void> {
  const result = await runWithTable(device, handshake, options, output, peer);
  printResult(device, handshake.role, options, output, result);
}

/** Runs a test and prints the rows of its table. @param peer as of `runSession` */
export function runWithTable(
  device: Device,
  handshake: Handshake,
  options: PerftestOptions,
  output: Output,
  peer: CmAddress,
): Promise<TestResult> {
  const table = new Table(options, output);
  const listeners: SessionListeners = {
    onConnected: (local, remote, negotiated) => table.header(device, local, remote, negotiated),
    onInterval: table.bandwidth.bind(table),
    onBandwidth: table.bandwidth.bind(table),
    onLatency: table.latency.bind(table),
  };
  return runSession(device, handshake, options, peer, listeners, output);
}

/** Prints the report. @throws CliError when messages were lost, or a limit was missed */
export function printResult(
  device: Device,
  role: Handshake['role'],
  options: PerftestOptions,
  output: Output,
  result: TestResult,
): void {
  const report = reportOf(device, role, options, result);
  output.result(report);
  new Table(options, output).end(report);
  const reason = failureReason(options, result);
  if (reason !== undefined) throw failure(reason, { isReported: true });
}
