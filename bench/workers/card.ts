/**
 * The card alone: two devices of one process on the memory link, without a network. One thread runs both ends, and
 * reads the clock whenever it changes ends, so that the share of each end is known.
 */
import { performance } from 'node:perf_hooks';
import { createMemoryHub, type Device, type Mr, openDevice, type Qp, throwIfFailed, type Wc } from 'wasm-roce';

export interface CardWork {
  readonly operation: 'WRITE' | 'READ' | 'SEND';
  readonly size: number;
  readonly pathMtu: 1024 | 4096;
  readonly ms: number;
}

export interface CardResult {
  /** With both ends on one core. */
  readonly messagesPerSecond: number;
  /** The ns of each message at either end. */
  readonly requesterNs: number;
  readonly responderNs: number;
  /** Packets of both directions per message. */
  readonly packets: number;
}

interface End {
  readonly device: Device;
  readonly mr: Mr;
  readonly qp: Qp;
  readonly wcs: readonly Wc[];
}

/** Time in which V8 optimizes the card (ms): a measurement that begins earlier shows how fast it does so. */
const WARM_UP_MS = 500;
const ROOM = 2 ** 20;
const WRS = 256;
const OPCODES = { SEND: 'SEND', WRITE: 'RDMA_WRITE', READ: 'RDMA_READ' } as const;

export class CardEnds {
  async measure({ operation, size, pathMtu, ms }: CardWork): Promise<CardResult> {
    const [a, b] = await openPair(pathMtu);
    try {
      const depth = Math.max(4, Math.min(operation === 'READ' ? 16 : 64, (2 * ROOM) / size));
      const receive = { sgList: b.mr.sge(0, ROOM) };
      for (let i = 0; operation === 'SEND' && i < WRS; i++) b.qp.postRecv(receive);
      const { addr, rkey } = b.mr.remote;
      const quiet = {
        opcode: OPCODES[operation],
        sgList: a.mr.sge(0, size),
        ...(operation !== 'SEND' && { remoteAddr: addr, rkey }),
      } as Parameters<Qp['postSend']>[0];
      const asking = { ...quiet, signaled: true } as typeof quiet;
      const batch = () => {
        let [atA, atB] = [0, 0];
        let then = performance.now();
        for (let i = 1; i < depth; i++) a.qp.postSend(quiet);
        a.qp.postSend(asking);
        for (let isDone = false; !isDone; ) {
          isDone = a.qp.sendCq.poll(a.wcs) > 0;
          if (isDone) throwIfFailed(a.wcs[0] as Wc);
          const half = performance.now();
          const received = b.qp.sendCq.poll(b.wcs);
          for (let i = 0; i < received; i++) b.qp.postRecv(receive);
          const now = performance.now();
          atA += half - then;
          atB += now - half;
          then = now;
        }
        return [atA, atB] as const;
      };
      for (const end = performance.now() + WARM_UP_MS; performance.now() < end; ) batch();
      const before = packets(a);
      let [count, atA, atB] = [0, 0, 0];
      const begin = performance.now();
      for (const end = begin + ms; performance.now() < end; count += depth) {
        const [ofA, ofB] = batch();
        atA += ofA;
        atB += ofB;
      }
      const seconds = (performance.now() - begin) / 1000;
      return {
        messagesPerSecond: count / seconds,
        requesterNs: (atA * 1e6) / count,
        responderNs: (atB * 1e6) / count,
        packets: (packets(a) - before) / count,
      };
    } finally {
      for (const { device } of [a, b]) await device.close({ force: true });
    }
  }
}

function packets({ device }: End): number {
  const { sent_pkts = 0, rcvd_pkts = 0 } = device.counters();
  return sent_pkts + rcvd_pkts;
}

async function openPair(pathMtu: 1024 | 4096): Promise<[End, End]> {
  const hub = createMemoryHub();
  const open = async (): Promise<End> => {
    const device = await openDevice({ link: 'memory', hub, memoryBytes: 32 * 2 ** 20 });
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 2 * WRS });
    const mr = await pd.regMr(ROOM, { access: ['localWrite', 'remoteWrite', 'remoteRead'] });
    const qp = await pd.createQp({ sendCq: cq, maxSendWr: WRS, maxRecvWr: WRS, sqSigAll: false });
    return { device, mr, qp, wcs: cq.createWcs(64) };
  };
  const [a, b] = [await open(), await open()];
  const options = { pathMtu, access: ['remoteWrite', 'remoteRead'] as const };
  await a.qp.connect(b.qp.endpoint(), options);
  await b.qp.connect(a.qp.endpoint(), options);
  return [a, b];
}
