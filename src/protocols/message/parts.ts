/** The parts of a connection on its device: a queue pair, and its shares of the receive and send buffers. */
import { Scope } from '../../base/scope.js';
import { VerbsError } from '../../errors.js';
import type { Context } from '../../verbs/objects/context.js';
import type { Pd } from '../../verbs/objects/pd.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Wc } from '../../verbs/work/wc.js';
import { ReceivePools, Receives } from './receivepool.js';
import { Requests } from './requests.js';
import { SendPool } from './sendpool.js';

/** Card memory of an idle connection: its queue pair with the send queue of the default `sends`, and its domain. */
const IDLE_BYTES = 7000;

/** Options of the connection with these names, none of them undefined. */
export interface PartSizes {
  readonly messageBytes: number;
  readonly receives: number;
  readonly ownReceives: boolean;
  readonly sends: number;
}

/** The handlers of the queue pair's completions. */
export interface CompletionHandlers {
  readonly onSent: (wc: Wc) => void;
  readonly onReceived: (wc: Wc) => void;
}

/** See the head of this file. */
export interface Parts {
  readonly qp: Qp;
  readonly requests: Requests;
  readonly receives: Receives;
  readonly sendPool: SendPool;
  /** All of it. */
  readonly scope: Scope;
}

/**
 * Allocates the parts, with the first receive buffers that connections share.
 * @param pools has the shared receive buffers
 * @param domain protection domain. Default: a new one among `resources`
 * @throws VerbsError ENOMEM; nothing is left allocated then
 */
export async function allocateParts(
  device: Context,
  { messageBytes, receives: count, ownReceives, sends }: PartSizes,
  handlers: CompletionHandlers,
  pools: ReceivePools,
  domain: Pd | undefined,
): Promise<Parts> {
  const scope = new Scope();
  try {
    let qp: Qp | undefined;
    // Internal: regions of the application in it do not keep the device open.
    const pd = domain ?? scope.add(await device.allocPd()).makeInternal();
    const sendPool = await SendPool.join(device);
    scope.add({ close: () => sendPool.leave(qp) });
    const ownPools = ownReceives
      ? new ReceivePools(device, { maxBytes: count * messageBytes, isKept: false })
      : undefined;
    const receives = scope.add(new Receives(await (ownPools ?? pools).join(messageBytes, count), count));
    const { srq, cq: recvCq } = receives.pool;
    qp = scope.add(
      await pd.createQp({
        sendCq: sendPool.cq.cq,
        recvCq: recvCq.cq,
        srq,
        sqSigAll: false,
        maxSendWr: sends,
        maxSendSge: 1,
        maxInlineData: 0,
      }),
    );
    await sendPool.attach(qp, handlers.onSent);
    receives.attach(qp, handlers.onReceived);
    if (ownPools === undefined && !receives.pool.hasBuffers) receives.addBuffers();
    return { qp, receives, sendPool, requests: new Requests(qp, sendPool, sends), scope };
  } catch (error) {
    await scope.close().catch(() => {});
    if (!(error instanceof VerbsError) || error.code !== 'ENOMEM') throw error;
    const buffers = ownReceives ? `${count * messageBytes} bytes of its own` : 'those that it shares';
    const cost = `about ${IDLE_BYTES} bytes beside its receive buffers, ${buffers}`;
    throw new VerbsError('ENOMEM', `no memory for a connection, which takes ${cost}: ${error.message}`);
  }
}
