/** Card B: holds the memory that card A reaches for, sends back what it is sent, and looks at what has arrived. */
import { setImmediate as eventLoop } from 'node:timers/promises';
import { type Endpoint, type RemoteMemory, throwIfFailed, WcOpcode } from '../../index.js';
import { Completions } from '../completions.js';
import { AtomicPlan, difference, isAtomic, type Operation, patternOf } from './operation.js';
import { DEPTH, openParty, type Party, type PartyOptions } from './party.js';

export interface Verdict {
  /** What is wrong; empty when nothing is. */
  readonly wrong: string;
  /** Packets that this end has sent again. */
  readonly retransmits: number;
}

/** What card A asks of card B; all arguments and answers can be sent as JSON. */
export interface Passive {
  open(): Promise<{ endpoint: Endpoint; memory: RemoteMemory }>;
  connect(remote: Endpoint): Promise<void>;
  /** Makes ready for an operation. */
  begin(operation: Operation): Promise<void>;
  /** The operation is over: what came of it here? */
  end(operation: Operation): Promise<Verdict>;
  close(): Promise<void>;
}

const ALL = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
/** Without a completion to wait for the card takes its turns for so long between two looks at the event loop (ms). */
const ATTEND_MS = 1;

export function createPassive(options: PartyOptions): Passive {
  let party: Party;
  let isOver = true;
  let retransmitted = 0;
  let serving = Promise.resolve();

  return {
    async open() {
      party = await openParty(options);
      const { qp, region } = party;
      return { endpoint: qp.endpoint(), memory: region.remote };
    },

    async connect(remote) {
      await party.qp.connect(remote, { access: ALL });
    },

    async begin(operation) {
      const { size, count } = operation;
      const memory = party.region.buffer;
      memory.fill(0, 0, size * count);
      if (operation.kind === 'RDMA_READ') patternOf(operation).copy(memory);
      if (isAtomic(operation)) memory.writeBigUInt64LE(new AtomicPlan(operation).initial);
      isOver = false;
      serving = Promise.resolve();
      if (operation.kind === 'SEND') serving = echo(party, options, operation);
      else if (options.spinMs > 0) serving = attend(party, () => isOver);
      // What goes wrong is told by `end`; until then nobody waits for it.
      serving.catch(() => {});
    },

    async end(operation) {
      isOver = true;
      await serving;
      const total = party.qp.counters().retransmits ?? 0;
      const retransmits = total - retransmitted;
      retransmitted = total;
      return { wrong: verify(party, operation), retransmits };
    },

    async close() {
      isOver = true;
      await party.device.close({ force: true });
    },
  };
}

/** The i-th message has the i-th place, and goes back from there. */
async function echo({ cq, qp, region }: Party, options: PartyOptions, { size, count }: Operation): Promise<void> {
  const completions = new Completions(cq, { spinMs: options.spinMs, idleMs: 10_000 });
  const place = (i: number) => region.slice(i * size, size);
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

/** The card answers without the program; taking turns all the time only spares it the way out of a sleep. */
async function attend({ cq }: Party, isOver: () => boolean): Promise<void> {
  const none = cq.createWcs(1);
  while (!isOver()) {
    for (const end = performance.now() + ATTEND_MS; performance.now() < end; ) cq.poll(none);
    await eventLoop();
  }
}

function verify({ region }: Party, operation: Operation): string {
  if (operation.kind === 'RDMA_READ') return '';
  if (!isAtomic(operation)) {
    const pattern = patternOf(operation);
    return difference('at the receiver', region.buffer.subarray(0, pattern.length), pattern);
  }
  const found = region.buffer.readBigUInt64LE();
  const { final } = new AtomicPlan(operation);
  return found === final ? '' : `the value at the end is 0x${found.toString(16)}, not 0x${final.toString(16)}`;
}
