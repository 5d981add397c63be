/**
 * Many queue pairs between two cards of one process: the time of a message over all in turn, and the memory of each.
 */
import { performance } from 'node:perf_hooks';
import { createMemoryHub, type Device, openDevice, type Pd, type Qp, throwIfFailed } from 'wasm-roce';

export interface ScaleResult {
  /** The ns of each message of 8 bytes, with both ends on one core. */
  readonly messageNs: number;
}

export interface IdleResult {
  /** Card memory of one queue pair with rings of one request each, and without rings. */
  readonly bytes: number;
  readonly bytesWithoutRings: number;
}

const IN_FLIGHT = 64;
const WRS = 16;
/** Ring sizes; linear extrapolation of their memory to size 0 gives the memory without rings. */
const RINGS = [64, 128] as const;
const SAMPLE = 64;

export class ScaleEnds {
  async measure(count: number, ms: number): Promise<ScaleResult> {
    const hub = createMemoryHub();
    const sizes = { link: 'memory', hub, memoryBytes: 384 * 2 ** 20 } as const;
    const [a, b] = [await openDevice(sizes), await openDevice(sizes)];
    try {
      const [pdA, pdB] = [await a.allocPd(), await b.allocPd()];
      const target = await pdB.regMr(4096, { access: ['localWrite', 'remoteWrite'] });
      const source = await pdA.regMr(4096);
      const { addr, rkey } = target.remote;
      const request = { opcode: 'RDMA_WRITE', sgList: source.sge(0, 8), remoteAddr: addr, rkey } as const;
      const cq = await a.createCq({ cqe: 4 * IN_FLIGHT });
      const passive = await b.createCq();
      const qps: Qp[] = [];
      for (let i = 0; i < count; i++) {
        const rings = { maxSendWr: WRS, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
        const [qp, peer] = [
          await pdA.createQp({ sendCq: cq, ...rings }),
          await pdB.createQp({ sendCq: passive, ...rings }),
        ];
        await qp.connect(peer.endpoint());
        await peer.connect(qp.endpoint(), { access: ['remoteWrite'] });
        qps.push(qp);
      }
      const [wcs, none] = [cq.createWcs(IN_FLIGHT), passive.createWcs(1)];
      let [next, flying, done] = [0, 0, 0];
      const turn = () => {
        for (; flying < IN_FLIGHT; flying++) {
          (qps[next] as Qp).postSend(request);
          next = next + 1 < count ? next + 1 : 0;
        }
        passive.poll(none);
        const completed = cq.poll(wcs);
        for (let i = 0; i < completed; i++) throwIfFailed(wcs[i] as (typeof wcs)[0]);
        flying -= completed;
        done += completed;
      };
      // Warm-up: at least one message on each queue pair.
      for (const end = performance.now() + ms / 2; performance.now() < end || done < count; ) turn();
      done = 0;
      const begin = performance.now();
      while (performance.now() < begin + ms) turn();
      return { messageNs: ((performance.now() - begin) * 1e6) / done };
    } finally {
      for (const device of [a, b]) await device.close({ force: true });
    }
  }

  async idle(): Promise<IdleResult> {
    const device = await openDevice({ link: 'memory', hub: createMemoryHub(), memoryBytes: 64 * 2 ** 20 });
    try {
      const pd = await device.allocPd();
      const [small, large] = [await bytesOfQp(device, pd, RINGS[0]), await bytesOfQp(device, pd, RINGS[1])];
      const bytesWithoutRings = small - ((large - small) / (RINGS[1] - RINGS[0])) * RINGS[0];
      return { bytes: await bytesOfQp(device, pd, 1), bytesWithoutRings };
    } finally {
      await device.close({ force: true });
    }
  }
}

async function bytesOfQp(device: Device, pd: Pd, wrs: number): Promise<number> {
  const cq = await device.createCq();
  const { exports } = (device as unknown as { card: { exports: { memAvailable(): number } } }).card;
  const rings = { maxSendWr: wrs, maxRecvWr: wrs, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
  const before = exports.memAvailable();
  for (let i = 0; i < SAMPLE; i++) await pd.createQp({ sendCq: cq, ...rings });
  return (before - exports.memAvailable()) / SAMPLE;
}
