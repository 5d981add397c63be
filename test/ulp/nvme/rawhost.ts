/** A host whose capsules a test writes. */
import {
  type CmId,
  CompletionPump,
  type Cq,
  createCmId,
  type Device,
  type Mr,
  type Qp,
  type Wc,
  WcOpcode,
} from '../../../src/index.js';
import { decodeResponse, encodeConnectRequest, RESPONSE_BYTES, type Response } from '../../../src/ulp/nvme/wire.js';

const SLOTS = 64;
const SLOT_BYTES = 16_384;
/** Bytes that the target may read and write, behind the slots. */
export const MEMORY_BYTES = 2 ** 21;

export class RawHost {
  readonly #responses: Response[] = [];
  /** Keys that responses have invalidated. */
  readonly invalidated: number[] = [];
  #sent = 0;
  #hasEnded = false;

  private constructor(
    readonly id: CmId,
    readonly qp: Qp,
    readonly memory: Mr,
    cq: Cq,
  ) {
    new CompletionPump(cq, (wc) => this.#take(wc));
    void this.#awaitEnd();
  }

  /** @param privateData default: that of an admin queue */
  static async connect(
    device: Device,
    host: string,
    port: number,
    privateData: Uint8Array = encodeConnectRequest(0, 32, 0),
  ): Promise<RawHost> {
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 4 * SLOTS });
    const memory = await pd.regMr(SLOTS * (SLOT_BYTES + RESPONSE_BYTES) + MEMORY_BYTES, {
      access: ['localWrite', 'remoteRead', 'remoteWrite'],
    });
    const id = createCmId(device);
    await id.resolveAddr(host, port);
    await id.resolveRoute();
    const qp = await id.createQp(pd, { sendCq: cq, maxSendWr: 2 * SLOTS, maxRecvWr: SLOTS });
    const raw = new RawHost(id, qp, memory, cq);
    for (let slot = 0; slot < SLOTS; slot++) raw.#postReceive(slot);
    await id.connect({ privateData, initiatorDepth: 0 });
    return raw;
  }

  /** Address of the memory for data. */
  get address(): bigint {
    return BigInt(this.memory.iova) + BigInt(SLOTS * (SLOT_BYTES + RESPONSE_BYTES));
  }

  /** The memory for data. */
  get data(): Buffer {
    return this.memory.buffer.subarray(SLOTS * (SLOT_BYTES + RESPONSE_BYTES));
  }

  /** Whether the target has disconnected. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  send(capsule: Uint8Array): void {
    const at = (this.#sent++ % SLOTS) * SLOT_BYTES;
    this.memory.copyIn(capsule, at);
    this.qp.postSend({ opcode: 'SEND', sgList: this.memory.slice(at, capsule.length) });
  }

  /** Takes the responses that have come. */
  take(): Response[] {
    return this.#responses.splice(0);
  }

  async close(): Promise<void> {
    await this.id.close();
  }

  #postReceive(slot: number): void {
    const at = SLOTS * SLOT_BYTES + slot * RESPONSE_BYTES;
    this.qp.postRecv({ wrId: slot, sgList: this.memory.slice(at, RESPONSE_BYTES) });
  }

  #take({ opcode, status, wrId, hasInvalidated, invalidatedRkey }: Wc): void {
    if (status !== 0 || opcode !== WcOpcode.RECV) return;
    if (hasInvalidated) this.invalidated.push(invalidatedRkey);
    const at = SLOTS * SLOT_BYTES + wrId * RESPONSE_BYTES;
    this.#responses.push(decodeResponse(Buffer.from(this.memory.buffer.subarray(at, at + RESPONSE_BYTES))));
    this.#postReceive(wrId);
  }

  async #awaitEnd(): Promise<void> {
    for await (const { type } of this.id.channel) if (type === 'DISCONNECTED' || type === 'DEVICE_REMOVAL') break;
    this.#hasEnded = true;
  }
}
