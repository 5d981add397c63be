/** What both ends of the demo have. */
import type { Cq, Device, Mr, OpenOptions, Pd, Qp } from '../../index.js';
import { openWatched } from '../device.js';
import { REGION_BYTES } from './operation.js';

export interface PartyOptions extends OpenOptions {
  /** How long to spin for a completion, milliseconds; 0 where the peer runs on the same thread. */
  readonly spinMs: number;
}

export interface Party {
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
  readonly qp: Qp;
  /** What is sent, and what the peer may write and read. */
  readonly region: Mr;
}

const MEMORY_BYTES = 2 ** 28;
/** Receives posted ahead of the peer's SENDs, and requests in flight at most. */
export const DEPTH = 16;

export async function openParty({ spinMs: _spinMs, ...options }: PartyOptions): Promise<Party> {
  const device = await openWatched({ memoryBytes: MEMORY_BYTES, ...options });
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
