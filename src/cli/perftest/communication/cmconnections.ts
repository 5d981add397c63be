/**
 * The connections of a test with `-R`: rdma_cm connects one queue pair after another, to the port of the communication.
 * With UD the client sends its queue pair number as immediate data, if the server also sends.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { RNR_TIMER } from '../../../base/rnrtimer.js';
import {
  type CmAddress,
  CmError,
  type CmId,
  type CmIdOptions,
  type ConnParam,
  createCmId,
  type DatagramDestination,
  GRH_BYTES,
  type Qp,
} from '../../../index.js';
import { failure } from '../../exit.js';
import { isReadOrAtomic } from '../parameters.js';
import type { PerftestContext } from '../resources.js';
import type { Handshake } from './handshake.js';

/** Time that an end waits for the peer's DREQ, or for the answer to its own (ms). */
const DISCONNECT_MS = 1000;
/** Time that the client waits for a server that listens, and time between its attempts (ms). */
const [LISTEN_WAIT_MS, RETRY_MS] = [5000, 10];
/** Bytes of the UD message that carries the queue pair number; their content has no meaning. */
const QPN_BYTES = 4;

export class CmConnections {
  readonly #ids: CmId[] = [];

  /** @param there address and port of the peer */
  constructor(
    readonly ctx: PerftestContext,
    readonly role: Handshake['role'],
    readonly there: CmAddress,
  ) {}

  /** Connects all queue pairs. @param barrier waits for the peer: before the first connection, and after the last */
  async connect(barrier: () => Promise<void>): Promise<void> {
    if (this.role === 'client') {
      await barrier();
      for (let i = 0; i < this.ctx.options.qps; i++) await this.#connectQp(i);
    } else {
      await using listener = createCmId(this.ctx.device, this.#idOptions());
      await listener.bindAddr('::', this.ctx.options.port);
      await listener.listen();
      await barrier();
      for (let i = 0; i < this.ctx.options.qps; i++) await this.#acceptQp(i, listener);
    }
    await barrier();
  }

  /** Disconnects and closes. The server disconnects first, as the stock one does. */
  async disconnect(): Promise<void> {
    await Promise.all(this.#ids.map((id) => (this.role === 'server' ? disconnect(id) : awaitDisconnect(id))));
    await this.close();
  }

  async close(): Promise<void> {
    for (const id of this.#ids.splice(0)) await id.close();
  }

  async #connectQp(index: number): Promise<void> {
    const { ctx } = this;
    const until = performance.now() + LISTEN_WAIT_MS;
    let datagram: DatagramDestination | undefined;
    for (;;)
      try {
        datagram = await this.#tryConnect(ctx.qp(index));
        break;
      } catch (error) {
        // the stock server passes the barrier before it listens
        if (!(isNotListening(error) && performance.now() < until)) throw error;
        await ctx.qp(index).modify({ state: 'RESET' });
        await sleep(RETRY_MS);
      }
    if (datagram?.ah === undefined) return;
    ctx.setDestination(index, { ah: datagram.ah, remoteQpn: datagram.qpNum, remoteQkey: datagram.qkey });
    if (this.#serverSends) await ctx.sendQpn(index, QPN_BYTES);
  }

  /** @returns the destination of datagrams, with UD */
  async #tryConnect(qp: Qp): Promise<DatagramDestination | undefined> {
    const id = createCmId(this.ctx.device, this.#idOptions());
    try {
      await id.resolveAddr(this.there.address, this.there.port);
      await id.resolveRoute();
      await id.useQp(qp);
      const { datagram } = await id.connect(this.#param());
      this.#ids.push(id);
      return datagram;
    } catch (error) {
      await id.close();
      throw error;
    }
  }

  async #acceptQp(index: number, listener: CmId): Promise<void> {
    const { ctx } = this;
    const { idleMs } = ctx.options;
    const id = await listener.getRequest(idleMs > 0 ? { timeout: idleMs } : {}).catch((cause: Error) => {
      throw failure(`connection ${index + 1} of ${ctx.options.qps} was not requested: ${cause.message}`, { cause });
    });
    this.#ids.push(id);
    await id.useQp(ctx.qp(index));
    const isFirstAwaited = id.space === 'UDP' && this.#serverSends;
    if (isFirstAwaited) ctx.postQpnRecv(index, GRH_BYTES + QPN_BYTES);
    await id.accept(this.#param());
    if (isFirstAwaited) await ctx.recvQpn(index);
  }

  /** The server also sends messages, so that it needs to reach the client's queue pair. */
  get #serverSends(): boolean {
    const { kind, bidirectional } = this.ctx.options;
    return kind.measures === 'lat' || bidirectional;
  }

  #idOptions(): CmIdOptions {
    const { transport, trafficClass, timeout } = this.ctx.options;
    return {
      ...(transport === 'UD' ? { space: 'UDP' } : { qpType: transport }),
      ...{ tos: trafficClass, minRnrTimer: RNR_TIMER },
      ...(timeout > 0 && { ackTimeout: timeout }),
    };
  }

  #param(): ConnParam {
    const { kind, transport, retryCnt, outs } = this.ctx.options;
    if (transport === 'UD') return {};
    const depth = isReadOrAtomic(kind) ? outs : 0;
    return { retryCnt, ...(depth !== undefined && { responderResources: depth, initiatorDepth: depth }) };
  }
}

function isNotListening(error: unknown): boolean {
  return error instanceof CmError && (error.reason === 'INVALID_SERVICE_ID' || error.reason === 'UNSUPPORTED');
}

async function disconnect(id: CmId): Promise<void> {
  const late = new Promise((resolve) => setTimeout(resolve, DISCONNECT_MS).unref());
  await Promise.race([id.disconnect().catch(() => {}), late]);
}

async function awaitDisconnect(id: CmId): Promise<void> {
  if (id.space === 'UDP') return;
  const signal = AbortSignal.timeout(DISCONNECT_MS);
  try {
    while (id.state === 'ESTABLISHED') await id.channel.next({ signal });
  } catch {
    await disconnect(id);
  }
}
