/** The objects that both cards of the demo have. */
import type { Cq, Device, Mr, OpenOptions, Pd, Qp } from '../../index.js';
import { openPublished } from '../device.js';
import { REGION_BYTES } from './operation.js';

export interface PeerOptions extends OpenOptions {
  /** Time to spin for a completion, milliseconds; 0 if the other card runs on the same thread. */
  readonly spinMs: number;
}

export interface Peer {
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
  readonly qp: Qp;
  /** Holds what is sent, and what the other card may write and read. */
  readonly region: Mr;
}

const MEMORY_BYTES = 2 ** 28;
/** Receives kept posted, and the most requests in flight. */
export const DEPTH = 16;

export async function openPeer({ spinMs: _spinMs, ...options }: PeerOptions): Promise<Peer> {
  const device = await openPublished({ memoryBytes: MEMORY_BYTES, ...options });
  try {
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 4 * DEPTH });
    const qp = await pd.createQp({ sendCq: cq, maxSendWr: DEPTH, maxRecvWr: DEPTH });
    const access = ['localWrite', 'remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
    const region = await pd.regMr(REGION_BYTES, { access });
    return { device, pd, cq, qp, region };
  } catch (error) {
    await device.close({ force: true });
    throw error;
  }
}
