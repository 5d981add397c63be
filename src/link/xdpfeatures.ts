/** What an interface offers to the xdp link, asked without opening anything and without privilege. */
import { ask, attributesOf, NETLINK, NetlinkError, NLM, numberIn, RTM, u32 } from './netlink.js';

export interface XdpFeatures {
  /** The driver runs XDP programs itself; otherwise the kernel does, later. */
  readonly isNative: boolean;
  /** Packets go between the interface and the card's memory without a copy. */
  readonly zeroCopy: boolean;
  /** The driver's XDP takes frames that are longer than a page. */
  readonly multiBuffer: boolean;
}

/** An XDP program that runs on an interface. */
export interface AttachedProgram {
  readonly id: number;
  readonly mode: 'native' | 'generic' | 'offloaded';
}

/** Generic netlink: its controller, and the family of network devices (linux/netdev.h). */
const CONTROLLER = { ID: 16, GET_FAMILY: 3, FAMILY_ID: 1, FAMILY_NAME: 2 } as const;
const NETDEV = { NAME: 'netdev\0', GET: 1, IFINDEX: 1, XDP_FEATURES: 3 } as const;
const FEATURE = { BASIC: 1, REDIRECT: 2, ZERO_COPY: 8, RX_SG: 32 } as const;
const IFLA_XDP = 43;
const XDP = { ATTACHED: 2, PROG_ID: 4, DRV_ID: 5, SKB_ID: 6, HW_ID: 7 } as const;

/** Undefined when the kernel does not tell: before Linux 6.3. */
export function xdpFeatures(ifindex: number): XdpFeatures | undefined {
  try {
    const name: [number, Uint8Array] = [CONTROLLER.FAMILY_NAME, Buffer.from(NETDEV.NAME)];
    const family = numberIn(generic(CONTROLLER.ID, CONTROLLER.GET_FAMILY, name), CONTROLLER.FAMILY_ID) ?? 0;
    const device = generic(family, NETDEV.GET, [NETDEV.IFINDEX, u32(ifindex)]);
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

/** The XDP program of an interface. @throws NetlinkError ENODEV */
export function attachedProgram(ifindex: number): AttachedProgram | undefined {
  const header = new Uint8Array(16);
  header.set(u32(ifindex), 4);
  const [answer] = ask(RTM.GETLINK, NLM.ACK, header);
  const xdp = attributesOf(attributesOf(answer?.body ?? header, 16).get(IFLA_XDP) ?? new Uint8Array(0));
  const mode = (['native', 'generic', 'offloaded'] as const)[(xdp.get(XDP.ATTACHED)?.[0] ?? 0) - 1] ?? 'native';
  const kinds = { native: XDP.DRV_ID, generic: XDP.SKB_ID, offloaded: XDP.HW_ID };
  const id = numberIn(xdp, XDP.PROG_ID) ?? numberIn(xdp, kinds[mode]);
  return id ? { id, mode } : undefined;
}

/** One question of generic netlink, one answer. */
function generic(family: number, command: number, attribute: [number, Uint8Array]) {
  const header = Uint8Array.of(command, 1, 0, 0);
  const [answer] = ask(family, NLM.ACK, header, [attribute], NETLINK.GENERIC);
  return attributesOf(answer?.body ?? header, 4);
}
