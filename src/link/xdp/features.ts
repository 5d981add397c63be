/** Queries what an interface offers to the xdp link. Opens no socket of XDP and needs no privilege. */
import { attributesOf, NETLINK, NetlinkError, NLM, netlinkRequest, numberIn, RTM, u32 } from '../netlink.js';

/** XDP features of an interface's driver. */
export interface XdpFeatures {
  /** The driver runs XDP programs itself (native mode). If false, the kernel runs them later (generic mode). */
  readonly isNative: boolean;
  /** The driver moves packets to and from a user's memory without a copy. */
  readonly zeroCopy: boolean;
  /** The driver passes frames that are longer than a page to XDP programs. */
  readonly multiBuffer: boolean;
}

/** An XDP program that is attached to an interface. */
export interface AttachedProgram {
  /** The kernel's id of the program. */
  readonly id: number;
  /** The place where the program runs: the driver, the kernel, or the adapter. */
  readonly mode: 'native' | 'generic' | 'offloaded';
}

/** Generic netlink: its controller, and the family of network devices (linux/netdev.h). */
const CONTROLLER = { ID: 16, GET_FAMILY: 3, FAMILY_ID: 1, FAMILY_NAME: 2 } as const;
const NETDEV = { NAME: 'netdev\0', GET: 1, IFINDEX: 1, XDP_FEATURES: 3 } as const;
const FEATURE = { BASIC: 1, REDIRECT: 2, ZERO_COPY: 8, RX_SG: 32 } as const;
const IFLA_XDP = 43;
const XDP = { ATTACHED: 2, PROG_ID: 4, DRV_ID: 5, SKB_ID: 6, HW_ID: 7 } as const;

/** Returns the XDP features of an interface; undefined before Linux 6.3, which does not report them. */
export function xdpFeatures(ifindex: number): XdpFeatures | undefined {
  try {
    const name: [number, Uint8Array] = [CONTROLLER.FAMILY_NAME, Buffer.from(NETDEV.NAME)];
    const family = numberIn(genericRequest(CONTROLLER.ID, CONTROLLER.GET_FAMILY, name), CONTROLLER.FAMILY_ID) ?? 0;
    const device = genericRequest(family, NETDEV.GET, [NETDEV.IFINDEX, u32(ifindex)]);
    const features = numberIn(device, NETDEV.XDP_FEATURES) ?? 0;
    const has = (bits: number) => (features & bits) === bits;
    return {
      isNative: has(FEATURE.BASIC | FEATURE.REDIRECT),
      zeroCopy: has(FEATURE.ZERO_COPY),
      multiBuffer: has(FEATURE.RX_SG),
    };
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/** Returns the XDP program of an interface; undefined if none is attached. @throws NetlinkError ENODEV */
export function attachedProgram(ifindex: number): AttachedProgram | undefined {
  const header = new Uint8Array(16);
  header.set(u32(ifindex), 4);
  const [reply] = netlinkRequest(RTM.GETLINK, NLM.ACK, header);
  const xdp = attributesOf(attributesOf(reply?.body ?? header, 16).get(IFLA_XDP) ?? new Uint8Array(0));
  const mode = (['native', 'generic', 'offloaded'] as const)[(xdp.get(XDP.ATTACHED)?.[0] ?? 0) - 1] ?? 'native';
  const kinds = { native: XDP.DRV_ID, generic: XDP.SKB_ID, offloaded: XDP.HW_ID };
  const id = numberIn(xdp, XDP.PROG_ID) ?? numberIn(xdp, kinds[mode]);
  return id ? { id, mode } : undefined;
}

/** Sends a request of generic netlink and returns the attributes of its single reply. */
function genericRequest(family: number, command: number, attribute: [number, Uint8Array]) {
  const header = Uint8Array.of(command, 1, 0, 0);
  const [reply] = netlinkRequest(family, NLM.ACK, header, [attribute], NETLINK.GENERIC);
  return attributesOf(reply?.body ?? header, 4);
}
