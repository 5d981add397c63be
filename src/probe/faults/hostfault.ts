/** Rules of faults that pretend events of the host, such as `port down`. */
import { gidAddress, gidBytes } from '../../base/gid.js';
import { show } from '../../base/options.js';
import { invalidValue } from '../../errors.js';

/** An event, as a rule says it. GIDs are IP addresses, as the GID table has them. */
export type HostFault =
  | { readonly kind: 'port down' }
  | { readonly kind: 'device failure' }
  | { readonly kind: 'gid add'; readonly address: string }
  | { readonly kind: 'gid remove'; readonly address: string }
  | { readonly kind: 'gid move'; readonly address: string; readonly index: number };

const FORMS = "'port down', 'gid add ADDRESS', 'gid remove ADDRESS', 'gid move ADDRESS to INDEX' or 'device failure'";

/**
 * Returns the event of a rule; undefined if the rule is for packets.
 * @throws TypeError for a mistake
 */
export function parseHostFault(rule: string): HostFault | undefined {
  const words = rule.trim().split(/\s+/);
  const [subject, action = '', name = '', ...rest] = words;
  if (subject !== 'port' && subject !== 'gid' && subject !== 'device') return undefined;
  const text = words.join(' ');
  if (text === 'port down' || text === 'device failure') return { kind: text };
  const kind = `${subject} ${action}`;
  const address = addressIn(name);
  if (address !== undefined) {
    if (kind === 'gid add' && rest.length === 0) return { kind, address };
    if (kind === 'gid remove' && rest.length === 0) return { kind, address };
    const [to, index = ''] = rest;
    if (kind === 'gid move' && rest.length === 2 && to === 'to' && /^\d{1,2}$/.test(index))
      return { kind, address, index: Number(index) };
  }
  throw invalidValue(`rule is ${show(rule)}, must be ${FORMS}`);
}

function addressIn(text: string): string | undefined {
  try {
    return gidAddress(gidBytes(text));
  } catch {
    return undefined;
  }
}
