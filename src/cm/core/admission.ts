/**
 * Checks of a REQ before the application sees it, in the order of Linux. The first check that fails decides the reason
 * of the REJ.
 */
import { ipBytes, isMulticast } from '../../base/address.js';
import { gidAddress, gidText } from '../../base/gid.js';
import { type CmaHdr, parseCmaHdr } from './cmahdr.js';
import { mtuBytes } from './derive.js';
import { chooseListener, type Listener, type Listeners, MAX_OF_PEER } from './listeners.js';
import { type Message, Transport } from './messages.js';
import type { Partitions } from './partitions.js';
import { RejectReason } from './reasons.js';
import { parseServiceId } from './serviceid.js';
import { HALF_OPEN_GRACE, HALF_OPEN_PACE } from './times.js';

/** The local port. */
export interface Host {
  /** Whether a GID, as text, is in the port's GID table. */
  isLocal(gid: string): boolean;
  /** Active path MTU, bytes. */
  readonly maxMtu: number;
}

/** The listener that receives a REQ, or the reason of the REJ. */
export type Admission =
  | { readonly listener: Listener; readonly hdr: CmaHdr }
  /** `info`: additional rejection information, which some reasons carry. */
  | { readonly refused: number; readonly info?: Uint8Array };

const LARGEST_MTU_CODE = 5;

/**
 * Decides about a REQ that is neither a duplicate nor stale.
 * @param source GID that the REQ came from, as `gidText` writes it
 */
export function admit(
  req: Message<'REQ'>,
  source: string,
  listeners: Listeners,
  host: Host,
  partitions: Partitions,
): Admission {
  const service = parseServiceId(req.serviceId);
  const candidates = service ? listeners.find(service.space, service.port) : [];
  if (candidates.length === 0) return { refused: RejectReason.INVALID_SERVICE_ID };
  const { primary, pathMtu } = req;
  // The additional information would be an acceptable GID (IBTA table 110). Zeroes: none in particular.
  if (!host.isLocal(gidText(primary.remoteGid))) return { refused: RejectReason.INVALID_GID, info: new Uint8Array(16) };
  // No reason of the table fits better.
  if (partitions.indexOf(req.pkey) === undefined) return { refused: RejectReason.UNSUPPORTED };
  const hdr = parseCmaHdr(req.privateData);
  if (hdr === undefined || !areValidEnds(hdr, gidText(primary.remoteGid)))
    return { refused: RejectReason.CONSUMER_DEFINED };
  const listener = chooseListener(candidates, hdr.destination);
  if (listener === undefined) return { refused: RejectReason.CONSUMER_DEFINED };
  if (Transport[listener.transport as 'RC' | 'UC'] !== req.transport)
    return { refused: RejectReason.INVALID_TRANSPORT_TYPE };
  if (pathMtu < 1 || pathMtu > LARGEST_MTU_CODE || mtuBytes(pathMtu) > host.maxMtu)
    return { refused: RejectReason.INVALID_MTU, info: Uint8Array.of(Math.log2(host.maxMtu) - 7) };
  // The REP goes to the GID that the REQ names: a host must not name another one.
  if (gidText(primary.localGid) !== source) return { refused: RejectReason.INVALID_GID, info: new Uint8Array(16) };
  return hasRoom(listener, source) ? { listener, hdr } : { refused: RejectReason.NO_RESOURCES };
}

/**
 * Whether a listener takes another request of a peer. A full backlog refuses the newest: under a flood from many
 * addresses the oldest would never reach the application. A peer with fewer requests than another displaces one of
 * that.
 */
export function hasRoom({ requests, backlog }: Listener, source: string): boolean {
  return requests.size < backlog || requests.countOf(source) + 1 < requests.most;
}

/**
 * Whether a peer has to wait until it may have another connection: it has many that are not established. It gets one
 * when the application has decided about all of them and the oldest has had its time, and then another now and again.
 * Otherwise each request of a flood would cost the application a connection.
 * @param now milliseconds
 */
export function mustWait({ requests, halfOpen }: Listener, source: string, now: number): boolean {
  const undecided = requests.countOf(source);
  if (undecided + halfOpen.countOf(source) < MAX_OF_PEER) return false;
  const [oldest, newest] = [halfOpen.oldestOf(source), halfOpen.newestOf(source)];
  if (undecided > 0 || oldest === undefined || newest === undefined) return true;
  return now - oldest.halfOpenSince < HALF_OPEN_GRACE || now - newest.halfOpenSince < HALF_OPEN_PACE;
}

/**
 * Whether two addresses can be the ends of a connection: both are host addresses, or both are loopback addresses when
 * the message arrived at a loopback address. Linux has no RDMA on loopback interfaces.
 * @param receivedAt local address, or GID as text, that the message arrived at
 */
export function areValidEnds({ source, destination }: CmaHdr, receivedAt: string): boolean {
  const isValid = isLoopback(gidAddress(receivedAt)) ? isLoopback : isHostAddress;
  return isValid(source) && isValid(destination);
}

function isLoopback(address: string): boolean {
  return address.startsWith('127.') || address === '::1';
}

/** Whether a host can have an address: not unspecified, multicast, loopback or broadcast. */
export function isHostAddress(address: string): boolean {
  const bytes = ipBytes(address);
  if (isMulticast(bytes)) return false;
  if (bytes.length === 4) return bytes[0] !== 0 && bytes[0] !== 127 && !bytes.every((byte) => byte === 255);
  return bytes.some((byte, i) => byte !== (i === 15 ? 1 : 0)) && bytes.some((byte) => byte !== 0);
}
