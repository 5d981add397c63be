/** A hostile end of connections: one after the other, by rdma_cm and verbs alone. Its device is used again. */
import {
  type CmId,
  type ConnParam,
  type Cq,
  createCmId,
  type Device,
  type Mr,
  type Pd,
  type Qp,
  type Wc,
} from '../../../src/index.js';
import { Act, type Step } from './step.js';

/** Bytes of each receive, and how many there are. */
const RECEIVE_BYTES = 4096;
const RECEIVES = 64;
/** Places of messages that leave, which are used in turns; the other end may read and write them too. */
const PLACES = 32;
const PLACE_BYTES = 8192;
const DATA_BYTES = PLACES * PLACE_BYTES;

/** The way in which an end meets the other one. */
export type Meet = (end: RawEnd, privateData: Uint8Array) => Promise<CmId>;

export class RawEnd {
  #id: CmId | undefined;
  #qp: Qp | undefined;
  #steps = 0;
  readonly #wcs: Wc[];
  /** Memory that the other end has announced. */
  target = { addr: 0n, rkey: 0 };
  /** Private data of the other end. */
  peerData: Uint8Array = new Uint8Array(0);

  private constructor(
    readonly device: Device,
    readonly pd: Pd,
    readonly cq: Cq,
    readonly memory: Mr,
    readonly meet: Meet,
  ) {
    this.#wcs = cq.createWcs(64);
  }

  static async open(device: Device, meet: Meet): Promise<RawEnd> {
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 1024 });
    const memory = await pd.regMr(RECEIVES * RECEIVE_BYTES + DATA_BYTES, {
      access: ['localWrite', 'remoteRead', 'remoteWrite'],
    });
    return new RawEnd(device, pd, cq, memory, meet);
  }

  /** The memory that messages may name. */
  get address(): bigint {
    return BigInt(this.memory.iova) + BigInt(RECEIVES * RECEIVE_BYTES);
  }

  /** The first receives, which messages of the other end fill in order. */
  received(n: number): Buffer {
    return this.memory.buffer.subarray(n * RECEIVE_BYTES, (n + 1) * RECEIVE_BYTES);
  }

  get isConnected(): boolean {
    return this.#qp?.isAlive === true && this.#qp.state === 'RTS';
  }

  /** Makes the queue pair of an id, with its receives. */
  async prepare(id: CmId): Promise<void> {
    this.memory.buffer.fill(0, 0, 4 * RECEIVE_BYTES);
    const sizes = { maxSendWr: 256, maxRecvWr: RECEIVES, maxSendSge: 1, maxRecvSge: 1, sqSigAll: false };
    this.#qp = await id.createQp(this.pd, { sendCq: this.cq, ...sizes });
    for (let slot = 0; slot < RECEIVES; slot++)
      this.#qp.postRecv({ wrId: slot, sgList: this.memory.sge(slot * RECEIVE_BYTES, RECEIVE_BYTES) });
  }

  /** Begins the next connection. It may be refused. */
  async connect(privateData: Uint8Array): Promise<void> {
    await this.leave();
    this.target = { addr: 0n, rkey: 0 };
    try {
      this.#id = await this.meet(this, privateData);
    } catch (error) {
      await this.leave();
      if (typeof (error as { code?: unknown }).code !== 'string') throw error;
    }
  }

  async leave(): Promise<void> {
    const id = this.#id;
    this.#id = undefined;
    this.#qp = undefined;
    await id?.close();
  }

  /** Carries a step out. What cannot be posted is left out. */
  async do({ act, imm, addr, isAbsolute, bytes, payload }: Step): Promise<void> {
    if (act === Act.LEAVE) return this.leave();
    if (act === Act.MEET) return this.connect(payload);
    const qp = this.#qp;
    if (qp === undefined || !this.isConnected) return;
    // the bytes of the steps before may not have left yet
    const at = RECEIVES * RECEIVE_BYTES + (this.#steps++ % PLACES) * PLACE_BYTES;
    this.memory.buffer.set(payload.subarray(0, PLACE_BYTES), at);
    const length = Math.min(Math.max(payload.length, act === Act.SEND ? 0 : bytes), this.memory.length - at);
    const sgList = this.memory.sge(at, length);
    const { target } = this;
    const remote = { remoteAddr: BigInt.asUintN(64, isAbsolute ? addr : target.addr + addr), rkey: target.rkey };
    try {
      if (act === Act.SEND) qp.postSend({ opcode: 'SEND', sgList });
      else if (act === Act.SEND_WITH_IMM) qp.postSend({ opcode: 'SEND_WITH_IMM', immData: imm, sgList });
      else if (act === Act.WRITE) qp.postSend({ opcode: 'RDMA_WRITE', sgList, ...remote });
      else if (act === Act.READ) qp.postSend({ opcode: 'RDMA_READ', sgList, ...remote });
      else qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', immData: imm, sgList, ...remote });
    } catch (error) {
      if (typeof (error as { code?: unknown }).code !== 'string') throw error;
    }
    this.cq.poll(this.#wcs);
  }
}

/** Meets a service as its client. */
export function asClient(host: string, port: number, param: ConnParam = {}): Meet {
  return async (end, privateData) => {
    const id = createCmId(end.device);
    try {
      await id.resolveAddr(host, port);
      await id.resolveRoute();
      await end.prepare(id);
      const reply = await id.connect({ initiatorDepth: 0, ...param, privateData });
      end.peerData = reply.privateData;
      return id;
    } catch (error) {
      await id.close();
      throw error;
    }
  };
}

/**
 * Meets clients as their service.
 * @param invite lets a client connect
 */
export async function asService(
  device: Device,
  port: number,
  invite: () => void,
  param: ConnParam = {},
): Promise<Meet> {
  const listener = createCmId(device);
  await listener.bindAddr('::', port);
  await listener.listen();
  return async (end, privateData) => {
    invite();
    const id = await listener.getRequest({ timeout: 1000 });
    try {
      end.peerData = id.request?.privateData ?? new Uint8Array(0);
      await end.prepare(id);
      await id.accept({ initiatorDepth: 0, ...param, privateData }, { timeout: 1000 });
      return id;
    } catch (error) {
      await id.close();
      throw error;
    }
  };
}
