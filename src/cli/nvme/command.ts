/** `wasm-roce nvme-target` and `wasm-roce nvme`: both ends of NVMe over RDMA. */
import type { Command } from 'commander';
import { hostCommands } from './host.js';
import { targetCommand } from './target.js';

/** @param called the only command that is needed; default: all */
export function nvmeCommands(program: Command, called?: string): void {
  if (called !== 'nvme') targetCommand(program);
  if (called !== 'nvme-target') hostCommands(program);
}
