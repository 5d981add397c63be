/**
 * The queue pairs of a test with `-R`: each is connected by rdma_cm, one after the other, to the port at which the two ends
 * have met. The client of datagrams tells its queue pair by an immediate, where the server has something to send as well.
 */
import { setTimeout as sleep } from 'node:timers/promises';
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
} from '../../index.js';
import { failure } from '../exit.js';
import type { End } from './end.js';
import type { Exchange } from './handshake.js';
import { answersReads } from './kinds.js';

/** How long an end waits for the peer's goodbye, or for its answer to ours (ms). */
const FAREWELL_MS = 1000;
/** RNR timer of our queue pairs, a code: 0.64 ms, as the stock programs set it. */
const MIN_RNR_TIMER = 12;
/** How long the client takes it that nobody listens, and how often it asks (ms). */
const [PATIENCE_MS, RETRY_MS] = [5000, 10];
/** What the client of datagrams sends first. */
const FIRST_BYTES = 4;

export class CmPairs {
  readonly #ids: CmId[] = [];

  /** @param there of the server: where the client asks for connections; of the client: its address */
  constructor(
    readonly end: End,
    readonly role: Exchange['role'],
    readonly there: CmAddress,
  ) {}

  /** @param barrier the client comes when both ends are there, and both go on when all is connected */
  async connect(barrier: () => Promise<void>): Promise<void> {
    if (this.role === 'client') {
      await barrier();
      for (let i = 0; i < this.end.options.qps; i++) await this.#ask(i);
    } else {
      await using listener = createCmId(this.end.device, this.#idOptions());
      await listener.bindAddr('::', this.end.options.port);
      await listener.listen();
      await barrier();
      for (let i = 0; i < this.end.options.qps; i++) await this.#answer(i, listener);
    }
    await barrier();
  }

  /** The server says goodbye, as the stock one does. */
  async part(): Promise<void> {
    await Promise.all(this.#ids.map((id) => (this.role === 'server' ? leave(id) : left(id))));
    await this.close();
  }

  async close(): Promise<void> {
    for (const id of this.#ids.splice(0)) await id.close();
  }

  async #ask(index: number): Promise<void> {
    const { end } = this;
    const until = performance.now() + PATIENCE_MS;
    let datagram: DatagramDestination | undefined;
    for (;;)
      try {
        datagram = await this.#dial(end.qp(index));
        break;
      } catch (error) {
        // the stock server has answered before it listens
        if (!(isTooEarly(error) && performance.now() < until)) throw error;
        await end.qp(index).modify({ state: 'RESET' });
        await sleep(RETRY_MS);
      }
    if (datagram?.ah === undefined) return;
    end.reach(index, { ah: datagram.ah, remoteQpn: datagram.qpNum, remoteQkey: datagram.qkey });
    if (this.#isBothWays) await end.introduce(index, FIRST_BYTES);
  }

  /** @returns where datagrams go */
  async #dial(qp: Qp): Promise<DatagramDestination | undefined> {
    const id = createCmId(this.end.device, this.#idOptions());
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

  async #answer(index: number, listener: CmId): Promise<void> {
    const { end } = this;
    const { idleMs } = end.options;
    const id = await listener.getRequest(idleMs > 0 ? { timeout: idleMs } : {}).catch((cause: Error) => {
      throw failure(`connection ${index + 1} of ${end.options.qps} did not come: ${cause.message}`, { cause });
    });
    this.#ids.push(id);
    await id.useQp(end.qp(index));
    const isFirstAwaited = id.space === 'UDP' && this.#isBothWays;
    if (isFirstAwaited) end.postFirst(index, GRH_BYTES + FIRST_BYTES);
    await id.accept(this.#param());
    if (isFirstAwaited) await end.meet(index);
  }

  /** Datagrams go from the server to the client as well. */
  get #isBothWays(): boolean {
    const { kind, bidirectional } = this.end.options;
    return kind.measures === 'lat' || bidirectional;
  }

  #idOptions(): CmIdOptions {
    const { transport, trafficClass, timeout } = this.end.options;
    return {
      ...(transport === 'UD' ? { space: 'UDP' } : { qpType: transport }),
      ...{ tos: trafficClass, minRnrTimer: MIN_RNR_TIMER },
      ...(timeout > 0 && { ackTimeout: timeout }),
    };
  }

  #param(): ConnParam {
    const { kind, transport, retryCnt, outs } = this.end.options;
    if (transport === 'UD') return {};
    const depth = answersReads(kind) ? outs : 0;
    return { retryCount: retryCnt, ...(depth !== undefined && { responderResources: depth, initiatorDepth: depth }) };
  }
}

function isTooEarly(error: unknown): boolean {
  return error instanceof CmError && (error.reason === 'INVALID_SERVICE_ID' || error.reason === 'UNSUPPORTED');
}

async function leave(id: CmId): Promise<void> {
  const late = new Promise((resolve) => setTimeout(resolve, FAREWELL_MS).unref());
  await Promise.race([id.disconnect().catch(() => {}), late]);
}

async function left(id: CmId): Promise<void> {
  if (id.space === 'UDP') return;
  const signal = AbortSignal.timeout(FAREWELL_MS);
  try {
    while (id.state === 'ESTABLISHED') await id.channel.next({ signal });
  } catch {
    await leave(id);
  }
}
