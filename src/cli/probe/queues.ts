/** Queue pairs of scripts on a device: their numbers, and the addresses of their packets. */
import type { Scope } from '../../base/scope.js';
import type { Cq, Device, Pd } from '../../index.js';
import type { Flow, ScriptedLink, ScriptedQueue } from '../../probe.js';

/** Opens queue pairs whose packets a script writes. */
export class ScriptedQueues {
  #resources: { readonly pd: Pd; readonly cq: Cq } | undefined;

  constructor(
    readonly device: Device,
    readonly link: ScriptedLink,
  ) {}

  /** Opens one, until the scope is closed. The card reserves its number, so that no other connection gets it. */
  async open(scope: Scope): Promise<{ readonly qpn: number; readonly queue: ScriptedQueue }> {
    const { device, link } = this;
    this.#resources ??= { pd: await device.allocPd(), cq: await device.createCq({ cqe: 1 }) };
    const { pd, cq } = this.#resources;
    const { qpNum: qpn } = scope.add(await pd.createQp({ sendCq: cq, maxSendWr: 1, maxRecvWr: 1 }));
    return { qpn, queue: scope.add(link.open(qpn)) };
  }
}

/**
 * Addresses of packets from one of our queue pairs to the peer's, as the card would write them.
 * @param sgidIndex our address. Absent: the one that is the best for the peer's
 * @throws as `device.resolveAddress`
 */
export async function flowTo(
  device: Device,
  address: string,
  srcQp: number,
  destQp: number,
  sgidIndex?: number,
): Promise<Flow> {
  const grh = { dgid: address, ...(sgidIndex !== undefined && { sgidIndex }) };
  const resolved = await device.resolveAddress({ grh });
  const { sourceMac, destMac, source, destination, vlanTci, hopLimit } = resolved;
  return {
    ...{ srcMac: macText(sourceMac), dstMac: macText(destMac), srcIp: source, dstIp: destination },
    ...(vlanTci !== undefined && { vlan: vlanTci }),
    ...{ trafficClass: 0, flowLabel: 0, hopLimit, ipId: 0, sport: 0xc000 | (srcQp & 0x3fff) },
    ...{ pkey: 0xffff, migReq: true, srcQp, destQp },
  };
}

const macText = (mac: Uint8Array) => Array.from(mac, (byte) => byte.toString(16).padStart(2, '0')).join(':');
