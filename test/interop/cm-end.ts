/** Our end of an rdma_cm connection with a stock program: an id, its queue pair, and memory for messages. */
import {
  type CmId,
  type CmIdOptions,
  type Cq,
  createCmId,
  type Mr,
  type Pd,
  type Qp,
  type QpOptions,
  throwIfFailed,
  type Wc,
} from '../../src/index.js';
import type { OurDevice } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import type { Family } from './pair.js';

/** Timeout for a program of the guest to end (ms). */
export const PATIENCE = { timeout: 60_000 };
/** Timeout for an event or a completion (ms). */
const SOON = { timeout: 20_000 };
const ALL = ['localWrite', 'remoteWrite', 'remoteRead'] as const;
const SIZES = { maxSendWr: 16, maxRecvWr: 16 } satisfies Partial<QpOptions>;

/** The guest's address, our address, and the wildcard address. */
export const ADDRESSES: Readonly<Record<Family, { guest: string; card: string; any: string }>> = {
  IPv4: { guest: GUEST.ipv4, card: CARD.ipv4, any: '0.0.0.0' },
  IPv6: { guest: GUEST.ipv6, card: CARD.ipv6, any: '::0' },
};

/** One end of ours with its verbs objects. */
export class CmEnd implements AsyncDisposable {
  constructor(
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    readonly id: CmId,
    readonly qp: Qp,
  ) {}

  static async on(id: CmId): Promise<CmEnd> {
    const { device } = id;
    const [pd, cq] = [await device.allocPd(), await device.createCq({ cqe: 64 })];
    const mr = await pd.regMr(8192, { access: ALL });
    return new CmEnd(pd, cq, mr, id, await id.createQp(pd, { sendCq: cq, ...SIZES }));
  }

  receive(offset: number, length: number): void {
    this.qp.postRecv({ wrId: offset, sgList: this.mr.sge(offset, length) });
  }

  async completion(): Promise<Wc> {
    const wc = await this.cq.next(SOON);
    throwIfFailed(wc);
    return wc;
  }

  /** Waits for `count` successful completions of sends and receives, in any order. */
  async completions(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await this.completion();
  }

  send(offset: number, length: number): void {
    this.qp.postSend({ opcode: 'SEND', sgList: this.mr.sge(offset, length) });
  }

  /** Waits for the next event of a type, and ignores other events before it. */
  async event(type: string): Promise<void> {
    while ((await this.id.channel.next(SOON)).type !== type);
  }

  /** Closes all objects. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const resource of [this.id, this.mr, this.cq, this.pd]) await resource.close();
  }
}

/** Returns a client with resolved address and route. */
export async function resolved(
  our: OurDevice,
  address: string,
  port: number,
  options: CmIdOptions = {},
): Promise<CmEnd> {
  const id = createCmId(our.device, options);
  await id.resolveAddr(address, port);
  await id.resolveRoute();
  return CmEnd.on(id);
}

export async function listening(our: OurDevice, port: number, options: CmIdOptions = {}): Promise<CmId> {
  const id = createCmId(our.device, options);
  await id.bindAddr('::', port);
  await id.listen();
  return id;
}

/** Waits for the next client's request. @returns an end for it, not yet accepted */
export async function asked(listener: CmId): Promise<CmEnd> {
  return CmEnd.on(await listener.getRequest(SOON));
}
