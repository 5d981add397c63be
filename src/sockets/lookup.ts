/** The addresses of a host, in the order in which a socket tries them. */
import { ADDRCONFIG, type LookupAddress, lookup } from 'node:dns';
import { getDefaultAutoSelectFamily, isIP } from 'node:net';
import { badLookup } from './errors.js';
import type { SocketConnectOptions } from './options.js';

/** Called with each address, or with an error, as the event `lookup` of `net.Socket`. */
type OnLookup = (error: Error | null, address?: string, family?: number) => void;

/**
 * Resolves the host of `connect`. With `autoSelectFamily`, all of its addresses are tried, those of both families in
 * turn (RFC 8305, section 4).
 * @returns one address or more
 * @throws the error of the lookup; TypeError ERR_INVALID_IP_ADDRESS for a result that is no address
 */
export async function resolveHost(options: SocketConnectOptions, onLookup: OnLookup): Promise<string[]> {
  const { host = 'localhost', localAddress, autoSelectFamily = getDefaultAutoSelectFamily() } = options;
  if (isIP(host) !== 0) return [host];
  const family = Number(`${options.family ?? 0}`.replace('IPv', ''));
  const hints = options.hints || (family === 0 ? ADDRCONFIG : 0);
  const all = autoSelectFamily && family === 0 && localAddress === undefined;
  const found = await new Promise<LookupAddress[]>((resolve, reject) => {
    const resolver = options.lookup ?? lookup;
    resolver(host, { family, hints, all }, ((error: Error | null, address: string | LookupAddress[], kind: number) => {
      if (error) {
        onLookup(error);
        reject(error);
      } else {
        resolve(typeof address === 'string' ? [{ address, family: kind }] : address);
      }
    }) as never);
  });
  for (const { address, family } of found) onLookup(null, address, family);
  const wrong = found.find(({ address }) => isIP(address) === 0);
  if (wrong !== undefined || found.length === 0) throw badLookup(host, wrong?.address);
  return inTurns([...new Set(found.map(({ address }) => address))]);
}

/** Puts addresses of both families in turns, beginning with the family of the first. */
function inTurns(addresses: readonly string[]): string[] {
  const first = isIP(addresses[0] ?? '');
  const [some, others] = [true, false].map((isFirst) => addresses.filter((one) => (isIP(one) === first) === isFirst));
  return addresses.flatMap((_, i) => [some?.[i], others?.[i]]).filter((address) => address !== undefined);
}
