/** What a device and its port can do (ibv_query_device, ibv_query_port). */
import type { Card } from '../device/card.js';
import { LIMITS } from '../device/codes.js';
import type { Link, LinkFeatures } from '../link/link.js';
import { mtuWithin } from './ah.js';

export interface DeviceInfo {
  readonly name: string;
  readonly vendor: string;
  readonly vendorId: number;
  readonly fwVer: string;
  /** EUI-64 of the interface's MAC address, `0011:22ff:fe33:4455`. */
  readonly nodeGuid: string;
  readonly maxQp: number;
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxInlineData: number;
  readonly maxCqe: number;
  readonly maxMr: number;
  /** Bytes of the card's memory, and what is left of them for regions, queues and queue pairs. */
  readonly memoryBytes: number;
  readonly memoryAvailable: number;
  readonly maxQpRdAtom: number;
  readonly maxQpInitRdAtom: number;
  /** Atomics are atomic among the queue pairs of this device. */
  readonly atomicCap: 'HCA';
  readonly link: { readonly kind: string; readonly features: LinkFeatures };
}

export interface PortInfo {
  readonly state: 'ACTIVE' | 'DOWN';
  /** Payload bytes of a packet. */
  readonly maxMtu: number;
  /** The largest path MTU whose packets fit the interface. */
  readonly activeMtu: number;
  readonly gidTableLength: number;
  readonly pkeyTableLength: number;
  readonly maxMsgSize: number;
  readonly linkLayer: 'Ethernet';
  readonly interface: string;
  /** The interface's MTU, bytes of an IP packet. */
  readonly interfaceMtu: number;
}

/** No organisation's OUI: a device of software, as rxe says it. */
const VENDOR_ID = 0xffffff;
const VERSION = '0.1.0';
/** Ethernet, IPv6, UDP, BTH and RETH around the payload, pad and ICRC behind it; with the VLAN tag and ImmDt. */
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
  let activeMtu = mtuWithin(mtu);
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
