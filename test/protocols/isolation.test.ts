// A failure in the work of one connection ends this connection alone: no exception leaves an entry of the event loop.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openCommunicator } from '../../src/collective.js';
import { type Device, Qp, Srq } from '../../src/index.js';
import { Uncaught } from '../kit/uncaught.js';
import { device, OWN_HOST, peer, useDevices } from './devices.js';
import { PROTOCOLS } from './protocols.js';

useDevices();

/** Queue pair 1 belongs to the connection manager. */
const GSI_QPN = 1;

/** The queues that a service or its client may post to. */
const QUEUES = { postSend: [Qp], postRecv: [Qp, Srq] } as const;
type Post = keyof typeof QUEUES;
type Posting = Record<Post, (this: Qp | Srq, wr: unknown) => void>;

/** Lets one call of the queues of a device throw: the `nth`. */
function refuse(of: Device, method: Post, nth: number): void {
  const originals = QUEUES[method].map(({ prototype }) => [prototype, (prototype as Posting)[method]] as const);
  let calls = 0;
  for (const [prototype, original] of originals)
    (prototype as Posting)[method] = function (wr) {
      const isOthers = (this.device as unknown) !== of || (this instanceof Qp && this.qpNum === GSI_QPN);
      if (!isOthers && ++calls === nth) throw new RangeError(`work request ${nth} is refused`);
      original.call(this, wr);
    };
  restore = () => {
    for (const [prototype, original] of originals) (prototype as Posting)[method] = original;
    return calls >= nth;
  };
}
/** @returns whether a call has thrown */
let restore: () => boolean = () => false;
let uncaught: Uncaught;

beforeEach(() => {
  uncaught = new Uncaught();
});
afterEach(() => {
  restore();
  uncaught[Symbol.dispose]();
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe.each(Object.entries(PROTOCOLS))('%s', (_, { serve, talk }) => {
  test.each(['postSend', 'postRecv'] as const)('a %s that is refused ends its connection alone', async (post) => {
    const ends = { device, peer };
    const end = await serve(ends);
    await talk(ends);
    for (const of of [peer, device])
      for (let nth = 1; ; nth += nth < 32 ? 1 : nth) {
        refuse(of, post, nth);
        await talk(ends).catch(() => {});
        const hasThrown = restore();
        await turn();
        expect([nth, ...uncaught.errors]).toEqual([nth]);
        if (!hasThrown) break;
      }
    await talk(ends);
    await end();
  });
});

test.each(['postSend', 'postRecv'] as const)('a %s of a rank that is refused ends its communicator', async (post) => {
  const ranks = () =>
    Promise.allSettled(
      [device, peer].map(async (own, rank) => {
        const options = { rank, size: 2, device: own, host: OWN_HOST, reduceThread: 'own', joinTimeout: 5000 } as const;
        await using communicator = await openCommunicator(options);
        for (const length of [10, 500_000]) await communicator.allReduce(new Float32Array(length));
        await communicator.barrier();
      }),
    );
  const areFine = async () => expect((await ranks()).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
  await areFine();
  for (const of of [device, peer])
    for (let nth = 1; ; nth += nth < 32 ? 1 : nth) {
      refuse(of, post, nth);
      await ranks();
      const hasThrown = restore();
      await turn();
      expect([nth, ...uncaught.errors]).toEqual([nth]);
      if (!hasThrown) break;
    }
  await areFine();
});
