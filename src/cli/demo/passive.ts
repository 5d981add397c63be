/** Card B: holds the memory that card A accesses, returns messages, and verifies what has arrived. */
import { setImmediate as eventLoop } from 'node:timers/promises';
import { type Endpoint, type RemoteMemory, throwIfFailed, WcOpcode } from '../../index.js';
import { Completions } from '../completions.js';
import { AtomicPlan, difference, isAtomic, type Operation, patternOf } from './operation.js';
import { DEPTH, openPeer, type Peer, type PeerOptions } from './peer.js';

export interface VerifyResult {
  /** The error; empty if there is none. */
  readonly wrong: string;
  /** Packets that this end has retransmitted. */
  readonly retransmits: number;
}

/** The calls of card A to card B. All arguments and answers can be sent as JSON. */
export interface Passive {
  open(): Promise<{ endpoint: Endpoint; memory: RemoteMemory }>;
  connect(remote: Endpoint): Promise<void>;
  /** Prepares an operation. */
  begin(operation: Operation): Promise<void>;
  /** Ends the operation and verifies its bytes at this end. */
  end(operation: Operation): Promise<VerifyResult>;
  close(): Promise<void>;
}

const ALL = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
/** Time for which the card is polled before the event loop runs, when there is no completion to wait for (ms). */
const POLL_MS = 1;

export function createPassive(options: PeerOptions): Passive {
  let local: Peer;
  let isOver = true;
  let retransmitted = 0;
  let serving = Promise.resolve();

  return {
    async open() {
      local = await openPeer(options);
      const { qp, region } = local;
      return { endpoint: qp.endpoint(), memory: region.remote };
    },

    async connect(remote) {
      await local.qp.connect(remote, { access: ALL });
    },

    async begin(operation) {
      const { size, count } = operation;
      const memory = local.region.buffer;
      memory.fill(0, 0, size * count);
      if (operation.kind === 'RDMA_READ') patternOf(operation).copy(memory);
      if (isAtomic(operation)) memory.writeBigUInt64LE(new AtomicPlan(operation).initial);
      isOver = false;
      serving = Promise.resolve();
      if (operation.kind === 'SEND') serving = echo(local, options, operation);
      else if (options.spinMs > 0) serving = pollUntil(local, () => isOver);
      // `end` reports a failure; until then nobody awaits it.
      serving.catch(() => {});
    },

    async end(operation) {
      isOver = true;
      await serving;
      const total = local.qp.counters().retransmits ?? 0;
      const retransmits = total - retransmitted;
      retransmitted = total;
      return { wrong: verify(local, operation), retransmits };
    },

    async close() {
      isOver = true;
      await local.device.close({ force: true });
    },
  };
}

/** Returns each message. The ith message is received into the ith slice and sent from there. */
async function echo({ cq, qp, region }: Peer, options: PeerOptions, { size, count }: Operation): Promise<void> {
  const completions = new Completions(cq, { spinMs: options.spinMs, idleMs: 10_000 });
  const place = (i: number) => region.sge(i * size, size);
  let posted = 0;
  while (posted < Math.min(count, DEPTH)) qp.postRecv({ sgList: place(posted++) });
  for (let received = 0, sent = 0; sent < count; ) {
    const wc = await completions.next();
    throwIfFailed(wc);
    if (wc.opcode !== WcOpcode.RECV) {
      sent++;
      continue;
    }
    qp.postSend({ opcode: 'SEND', sgList: place(received++) });
    if (posted < count) qp.postRecv({ sgList: place(posted++) });
  }
}

/** Polls the card. It would answer in any case; polling only spares it the time to wake up. */
async function pollUntil({ cq }: Peer, isOver: () => boolean): Promise<void> {
  const none = cq.createWcs(1);
  while (!isOver()) {
    for (const end = performance.now() + POLL_MS; performance.now() < end; ) cq.poll(none);
    await eventLoop();
  }
}

function verify({ region }: Peer, operation: Operation): string {
  if (operation.kind === 'RDMA_READ') return '';
  if (!isAtomic(operation)) {
    const pattern = patternOf(operation);
    return difference('at the receiver', region.buffer.subarray(0, pattern.length), pattern);
  }
  const found = region.buffer.readBigUInt64LE();
  const { final } = new AtomicPlan(operation);
  return found === final ? '' : `the final value is 0x${found.toString(16)}, not 0x${final.toString(16)}`;
}
