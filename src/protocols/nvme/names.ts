/** Names of subsystems, hosts and namespaces: NVMe qualified names (NQN) and UUIDs. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { wrongNumber, wrongType } from '../../base/options.js';
import { MAX_NQN_BYTES } from './wire.js';

/** Returns the bytes of a UUID. @param name of the option @throws TypeError */
export function uuidBytes(name: string, text: unknown): Buffer {
  if (typeof text !== 'string' || !/^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i.test(text))
    throw wrongType(name, text, 'a UUID');
  return Buffer.from(text.replaceAll('-', ''), 'hex');
}

/** Returns a UUID that a text determines (RFC 9562, version 8). */
export function uuidOf(text: string): Buffer {
  const bytes = createHash('sha256').update(text).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return bytes;
}

/** Returns the NQN that is made of a UUID. */
export const uuidNqn = (uuid: string): string => `nqn.2014-08.org.nvmexpress:uuid:${uuid}`;

/** @param name of the option @throws TypeError, RangeError */
export function checkNqn(name: string, nqn: unknown): void {
  if (typeof nqn !== 'string' || !nqn.startsWith('nqn.')) throw wrongType(name, nqn, "a name that begins with 'nqn.'");
  if (Buffer.byteLength(nqn) > MAX_NQN_BYTES) throw wrongNumber(name, nqn, `at most ${MAX_NQN_BYTES} bytes`);
}

/** Returns an NQN for a subsystem that is the same each time on this machine, and different on every other one. */
export async function machineNqn(): Promise<string> {
  const machine = await readFile('/etc/machine-id', 'utf8').catch(() => hostname());
  const hex = uuidOf(`wasm-roce nvme-target ${machine.trim()}`).toString('hex');
  return uuidNqn(hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5'));
}
