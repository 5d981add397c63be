/** What Wireshark makes of a capture: a third opinion on every packet. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Privilege, programPrivilege } from './privileges.js';

const run = promisify(execFile);

export function tsharkPrivilege(): Privilege {
  return programPrivilege('tshark');
}

/** Dissectors that guess at a payload by its first bytes, and then find our test patterns malformed. */
const GUESSERS = ['rpcordma', 'smc', 'smb_direct', 'nvme-rdma', 'lnet', 'iser', 'infiniband_sdp', 'fcoib'];

/**
 * One row for each packet that the display filter lets through, with the fields in the order asked for; a field that
 * occurs several times in a packet comes joined by commas, an absent one is empty.
 * @throws Error with tshark's own words when it refuses the file, a field or the filter
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

/** Frame numbers and protocols of what tshark calls malformed. */
export async function tsharkMalformed(file: string): Promise<string[]> {
  const rows = await tsharkFields(file, ['frame.number', 'frame.protocols'], '_ws.malformed');
  return rows.map((row) => row.join(' '));
}
