/**
 * Takes registered memory away from its ArrayBuffer in every way that JavaScript has, lets the garbage collector run
 * and others use what is free, and reads the region from the peer. Prints a line of JSON for each way. Node runs it
 * with --expose-gc.
 */
import { MessageChannel } from 'node:worker_threads';
import { throwIfFailed } from '../../src/index.js';
import { ALL, connectedPair, pattern } from './pair.js';

const BYTES = 2 ** 20;
const WAIT = { timeout: 20_000 };

type Source = ArrayBufferLike | ArrayBufferView;

interface Way {
  make(): ArrayBuffer;
  /** Takes the memory away. */
  take(buffer: ArrayBuffer): void;
}

const heap = () => new ArrayBuffer(BYTES);
const call = (buffer: ArrayBuffer, name: string, ...args: number[]) =>
  (Reflect.get(buffer, name) as (...args: number[]) => void).call(buffer, ...args);
let grown: WebAssembly.Memory;

const WAYS: Record<string, Way> = {
  'nothing has it any more': { make: heap, take: () => {} },
  structuredClone: { make: heap, take: (buffer) => structuredClone(buffer, { transfer: [buffer] }) },
  postMessage: {
    make: heap,
    take(buffer) {
      const { port1, port2 } = new MessageChannel();
      port1.postMessage(buffer, [buffer]);
      port1.close();
      port2.close();
    },
  },
  ...('transfer' in ArrayBuffer.prototype && {
    transfer: { make: heap, take: (buffer) => call(buffer, 'transfer') },
    'transfer to fewer bytes': { make: heap, take: (buffer) => call(buffer, 'transfer', 10) },
    'transfer to more bytes': { make: heap, take: (buffer) => call(buffer, 'transferToFixedLength', 2 * BYTES) },
  }),
  'a WebAssembly memory that grows': {
    make() {
      grown = new WebAssembly.Memory({ initial: BYTES / 65536, maximum: 1000 });
      return grown.buffer as ArrayBuffer;
    },
    take() {
      grown.grow(100);
      grown = undefined as never;
    },
  },
};

/** Collects garbage, and writes to all memory that has become free. */
async function collect(): Promise<void> {
  for (let i = 0; i < 4; i++) {
    (globalThis as { gc?: () => void }).gc?.();
    await new Promise((resolve) => setTimeout(resolve, 5));
    const others: Uint8Array[] = [];
    for (let n = 0; n < 30; n++) others.push(new Uint8Array(BYTES).fill(0xee));
  }
}

await using pair = await connectedPair();
const { a, b } = pair;
const expected = pattern(65536);
for (const [name, { make, take }] of Object.entries(WAYS)) {
  const register = async () => {
    const buffer = make();
    new Uint8Array(buffer).set(expected);
    const mr = await b.pd.regMr(buffer satisfies Source, { access: ALL });
    try {
      take(buffer);
      return { mr };
    } catch (error) {
      return { mr, refused: (error as Error).message, again: () => take(buffer) };
    }
  };
  const { mr, refused, again } = await register();
  await collect();
  a.mr.buffer.fill(0);
  a.qp.postSend({
    ...{ opcode: 'RDMA_READ', sgList: a.mr.sge(), remoteAddr: mr.iova, rkey: mr.rkey, signaled: true },
  });
  throwIfFailed(await a.cq.next(WAIT));
  const isIntact = Buffer.compare(a.mr.buffer, expected) === 0;
  await mr.close();
  // a refusal ends with the region
  again?.();
  console.log(JSON.stringify({ name, isIntact, ...(refused !== undefined && { refused }) }));
}
