/** Wireshark's dissection of a capture: a third check of every packet. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Privilege, programPrivilege } from './privileges.js';

const run = promisify(execFile);

export function tsharkPrivilege(): Privilege {
  return programPrivilege('tshark');
}

/** Heuristic dissectors, which would report our test patterns as malformed. */
const GUESSERS = ['rpcordma', 'smc', 'smb_direct', 'nvme-rdma', 'lnet', 'iser', 'infiniband_sdp', 'fcoib'];

/**
 * Returns one row for each packet that matches the display filter, with the fields in the given order. A field that
 * occurs several times in a packet is joined by commas, an absent field is empty.
 * @throws Error with tshark's message when it refuses the file, a field or the filter
 */
export async function tsharkFields(file: string, fields: readonly string[], filter = ''): Promise<string[][]> {
  const columns = fields.flatMap((field) => ['-e', field]);
  const quiet = GUESSERS.flatMap((name) => ['--disable-protocol', name]);
  const args = ['-n', ...quiet, '-r', file, '-T', 'fields', '-E', 'separator=/t', ...columns];
  if (filter !== '') args.push('-Y', filter);
  const { stdout } = await run('tshark', args, { maxBuffer: 1 << 28 });
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split('\t'));
}

/** Returns frame numbers and protocols of the frames that tshark reports as malformed. */
export async function tsharkMalformed(file: string): Promise<string[]> {
  const rows = await tsharkFields(file, ['frame.number', 'frame.protocols'], '_ws.malformed');
  return rows.map((row) => row.join(' '));
}
