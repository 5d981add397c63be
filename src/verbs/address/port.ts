/** Attributes of a device and its port (ibv_query_device, ibv_query_port), and the port's P_Key table (IBTA 10.9). */
import { checkInteger, wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import { LIMITS } from '../../device/codes.js';
import { outOfRange } from '../../errors.js';
import type { Link, LinkFeatures } from '../../link/link.js';
import { maxPathMtu } from './resolvedaddress.js';

/** Attributes and limits of a device, from `device.query()` (ibv_device_attr). */
export interface DeviceInfo {
  /** Name of the device: `wasm-` and the interface's name. */
  readonly name: string;
  /** Vendor name: `wasm-roce`. */
  readonly vendor: string;
  /** Vendor OUI: 0xffffff, as rxe has it. */
  readonly vendorId: number;
  /** Version of the card. */
  readonly fwVer: string;
  /** Node GUID: EUI-64 of the interface's MAC address, e.g. `0011:22ff:fe33:4455`. */
  readonly nodeGuid: string;
  /** Most queue pairs. */
  readonly maxQp: number;
  /** Most work requests of a send or receive queue. */
  readonly maxQpWr: number;
  /** Most scatter/gather elements of a work request. */
  readonly maxSge: number;
  /** Most bytes of inline data of a work request. */
  readonly maxInlineData: number;
  /** Most entries of a completion queue. */
  readonly maxCqe: number;
  /** Most memory regions and windows together. */
  readonly maxMr: number;
  /** Size of the card's memory in bytes. */
  readonly memoryBytes: number;
  /**
   * Bytes of the card's memory that are free for regions, queues and queue pairs. Those that regions once used are free
   * for regions only.
   */
  readonly memoryAvailable: number;
  /** Most outstanding READs and atomics of a queue pair as responder. */
  readonly maxQpRdAtom: number;
  /** Most outstanding READs and atomics of a queue pair as requester. */
  readonly maxQpInitRdAtom: number;
  /** Scope of atomics: `HCA`, the queue pairs of this device. */
  readonly atomicCap: 'HCA';
  /** Kind of the link, and its features. */
  readonly link: { readonly kind: string; readonly features: LinkFeatures };
}

/** State and limits of a port, from `device.queryPort()` (ibv_port_attr). */
export interface PortInfo {
  /** Whether the interface is up and its MTU is large enough. */
  readonly state: 'ACTIVE' | 'DOWN';
  /** Largest path MTU of the card, in payload bytes: 4096. */
  readonly maxMtu: number;
  /** Largest path MTU that fits the interface, in payload bytes; 0 = none. */
  readonly activeMtu: number;
  /** Entries of the GID table. */
  readonly gidTableLength: number;
  /** Entries of the P_Key table. */
  readonly pkeyTableLength: number;
  /** Largest message in bytes that this end sends and receives. Peers may take less: ConnectX takes 2^30. */
  readonly maxMsgSize: number;
  /** Link layer; always Ethernet. */
  readonly linkLayer: 'Ethernet';
  /** Name of the interface, e.g. `eth0`. */
  readonly interface: string;
  /** MTU of the interface: bytes of an IP packet. */
  readonly interfaceMtu: number;
}

/** No OUI, as rxe reports it for software devices. */
const VENDOR_ID = 0xffffff;
const VERSION = '0.1.0';
/** Bytes besides the payload: Ethernet, VLAN tag, IPv6, UDP, BTH, RETH and ImmDt before it, pad and ICRC after it. */
const OVERHEAD = LIMITS.maxFrame - LIMITS.maxMtu;

export function deviceInfo(card: Card, link: Link): DeviceInfo {
  return {
    name: `wasm-${link.interface.name}`,
    vendor: 'wasm-roce',
    vendorId: VENDOR_ID,
    fwVer: VERSION,
    nodeGuid: eui64(link.interface.mac),
    maxQp: card.options.maxQp,
    maxQpWr: LIMITS.maxWr,
    maxSge: LIMITS.maxSge,
    maxInlineData: LIMITS.maxInline,
    maxCqe: LIMITS.maxCqe,
    maxMr: card.options.maxMr,
    memoryBytes: card.options.memoryBytes,
    memoryAvailable: card.exports.memAvailable(),
    maxQpRdAtom: LIMITS.maxRdAtomic,
    maxQpInitRdAtom: LIMITS.maxRdAtomic,
    atomicCap: 'HCA',
    link: { kind: link.kind, features: link.features },
  };
}

export function portInfo(link: Link, gidTableLength: number, pkeyTableLength: number): PortInfo {
  const { mtu, up, name } = link.interface;
  let activeMtu = maxPathMtu(mtu);
  while (activeMtu > 256 && activeMtu + OVERHEAD > link.features.maxFrame) activeMtu /= 2;
  return {
    state: up && activeMtu > 0 ? 'ACTIVE' : 'DOWN',
    maxMtu: LIMITS.maxMtu,
    activeMtu,
    gidTableLength,
    pkeyTableLength,
    maxMsgSize: LIMITS.maxMessage,
    linkLayer: 'Ethernet',
    interface: name,
    interfaceMtu: mtu,
  };
}

function eui64(mac: Uint8Array): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac;
  const text = Buffer.from([a ^ 2, b, c, 0xff, 0xfe, d, e, f]).toString('hex');
  return text.replace(/(.{4})(?=.)/g, '$1:');
}

/** Entries of the card's P_Key table. */
const MAX_PKEYS = 128;

/**
 * Writes the P_Key table to the card.
 * @param pkeys 1 to 128 P_Keys of 16 bits; bit 15 = full member
 * @returns the table
 * @throws TypeError when it is no array of integers; RangeError for a wrong number of P_Keys, a wrong P_Key or
 * partition 0
 */
export function writePkeys(card: Card, pkeys: readonly number[]): readonly number[] {
  if (!Array.isArray(pkeys)) throw wrongType('pkeys', pkeys, 'an array of numbers');
  checkInteger('the number of pkeys', pkeys.length, 1, MAX_PKEYS);
  const at = card.exports.scratch() >>> 2;
  for (const [i, pkey] of pkeys.entries()) {
    card.u32[at + i] = checkInteger(`pkeys[${i}]`, pkey, 1, 0xffff);
    if ((pkey & 0x7fff) === 0) throw outOfRange(`pkeys[${i}] is ${pkey}, must not name partition 0`);
  }
  card.exports.setPkeys(pkeys.length);
  return [...pkeys];
}
