/**
 * What a REQ must pass before a program hears of it, in the order of Linux. The first check that fails names the reason of
 * the REJ.
 */
import { ipBytes, isMulticast } from '../link/address.js';
import { gidAddress, gidText } from '../verbs/gid.js';
import { type CmaHdr, parseCmaHdr } from './cmahdr.js';
import { mtuBytes } from './derive.js';
import { chooseListener, type Listener, type Listeners } from './listeners.js';
import { type Message, Transport } from './messages.js';
import type { Partitions } from './partitions.js';
import { RejectReason } from './reasons.js';
import { parseServiceId } from './serviceid.js';

/** What our own end is like. */
export interface Host {
  /** Whether a GID, as text, is ours. */
  isLocal(gid: string): boolean;
  /** Largest path MTU, bytes. */
  readonly maxMtu: number;
}

export type Admission =
  | { readonly listener: Listener; readonly hdr: CmaHdr }
  /** Additional information goes with some reasons. */
  | { readonly refused: number; readonly info?: Uint8Array };

const LARGEST_MTU_CODE = 5;

export function admit(req: Message<'REQ'>, listeners: Listeners, host: Host, partitions: Partitions): Admission {
  const service = parseServiceId(req.serviceId);
  const candidates = service ? listeners.on(service.space, service.port) : [];
  if (candidates.length === 0) return { refused: RejectReason.INVALID_SERVICE_ID };
  const { primary, pathMtu } = req;
  // The additional information of an invalid GID is the one that is right (IBTA table 110); nothing in particular is.
  if (!host.isLocal(gidText(primary.remoteGid))) return { refused: RejectReason.INVALID_GID, info: new Uint8Array(16) };
  // no reason of the table fits better
  if (partitions.indexOf(req.pkey) === undefined) return { refused: RejectReason.UNSUPPORTED };
  const hdr = parseCmaHdr(req.privateData);
  if (hdr === undefined || !mayTalk(hdr, gidText(primary.remoteGid))) return { refused: RejectReason.CONSUMER_DEFINED };
  const listener = chooseListener(candidates, hdr.destination);
  if (listener === undefined) return { refused: RejectReason.CONSUMER_DEFINED };
  if (Transport[listener.transport as 'RC' | 'UC'] !== req.transport)
    return { refused: RejectReason.INVALID_TRANSPORT_TYPE };
  if (pathMtu < 1 || pathMtu > LARGEST_MTU_CODE || mtuBytes(pathMtu) > host.maxMtu)
    return { refused: RejectReason.INVALID_MTU, info: Uint8Array.of(Math.log2(host.maxMtu) - 7) };
  return listener.undecided < listener.backlog ? { listener, hdr } : { refused: RejectReason.NO_RESOURCES };
}

/**
 * Whether two such ends can be: two hosts, or on a loopback interface, where Linux has no RDMA, two of its addresses.
 * @param reached our address, or GID as text, that the message came to
 */
export function mayTalk({ source, destination }: CmaHdr, reached: string): boolean {
  const isEnd = isLoopback(gidAddress(reached)) ? isLoopback : isHost;
  return isEnd(source) && isEnd(destination);
}

function isLoopback(address: string): boolean {
  return address.startsWith('127.') || address === '::1';
}

/** An address that one host may have: not 0, not a group, not loopback or broadcast. */
export function isHost(address: string): boolean {
  const bytes = ipBytes(address);
  if (isMulticast(bytes)) return false;
  if (bytes.length === 4) return bytes[0] !== 0 && bytes[0] !== 127 && !bytes.every((byte) => byte === 255);
  return bytes.some((byte, i) => byte !== (i === 15 ? 1 : 0)) && bytes.some((byte) => byte !== 0);
}
