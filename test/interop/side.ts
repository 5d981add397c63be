/** Our end of an rdma_cm connection with a stock program: an id, its queue pair, and what messages need. */
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

/** For a program of the guest to come to its end (ms). */
export const PATIENCE = { timeout: 60_000 };
/** For an event or a completion (ms). */
const SOON = { timeout: 20_000 };
const ALL = ['localWrite', 'remoteWrite', 'remoteRead'] as const;
const SIZES = { maxSendWr: 16, maxRecvWr: 16 } satisfies Partial<QpOptions>;

/** The guest's address, ours, and the one that stands for all. */
export const ADDRESSES: Readonly<Record<Family, { guest: string; card: string; any: string }>> = {
  IPv4: { guest: GUEST.ipv4, card: CARD.ipv4, any: '0.0.0.0' },
  IPv6: { guest: GUEST.ipv6, card: CARD.ipv6, any: '::0' },
};

/** One end of ours, with everything that it posts from. */
export class Side implements AsyncDisposable {
  constructor(
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    readonly id: CmId,
    readonly qp: Qp,
  ) {}

  static async on(id: CmId): Promise<Side> {
    const { device } = id;
    const [pd, cq] = [await device.allocPd(), await device.createCq({ cqe: 64 })];
    const mr = await pd.regMr(8192, { access: ALL });
    return new Side(pd, cq, mr, id, await id.createQp(pd, { sendCq: cq, ...SIZES }));
  }

  receive(offset: number, length: number): void {
    this.qp.postRecv({ wrId: offset, sgList: this.mr.slice(offset, length) });
  }

  async completion(): Promise<Wc> {
    const wc = await this.cq.next(SOON);
    throwIfFailed(wc);
    return wc;
  }

  /** So many of both kinds, in any order. */
  async completions(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await this.completion();
  }

  send(offset: number, length: number): void {
    this.qp.postSend({ opcode: 'SEND', sgList: this.mr.slice(offset, length) });
  }

  /** The next event of a kind; the others before it are of no interest. */
  async event(type: string): Promise<void> {
    while ((await this.id.channel.next(SOON)).type !== type);
  }

  /** Closes all of it. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const resource of [this.id, this.mr, this.cq, this.pd]) await resource.close();
  }
}

/** A client that may connect. */
export async function resolved(
  our: OurDevice,
  address: string,
  port: number,
  options: CmIdOptions = {},
): Promise<Side> {
  const id = createCmId(our.device, options);
  await id.resolveAddr(address, port);
  await id.resolveRoute();
  return Side.on(id);
}

export async function listening(our: OurDevice, port: number, options: CmIdOptions = {}): Promise<CmId> {
  const id = createCmId(our.device, options);
  await id.bindAddr('::', port);
  await id.listen();
  return id;
}

/** The end that the next client asks for. */
export async function asked(listener: CmId): Promise<Side> {
  return Side.on(await listener.getRequest(SOON));
}
