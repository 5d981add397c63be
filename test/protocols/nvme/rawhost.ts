/** A host whose capsules a test writes. */
import { expect } from 'vitest';
import {
  type CmId,
  type Cq,
  createCmId,
  type Device,
  type Mr,
  type Qp,
  type Wc,
  WcOpcode,
} from '../../../src/index.js';
import {
  ANY_CONTROLLER,
  CONFIGURATION,
  type CommandFields,
  type DataDescriptor,
  decodeResponse,
  ENABLE,
  encodeCommand,
  encodeConnectData,
  encodeConnectRequest,
  FABRICS_OPCODE,
  FabricsType,
  inMemory,
  NVME_PORT,
  Property,
  RESPONSE_BYTES,
  type Response,
} from '../../../src/protocols/nvme/wire.js';
import { CompletionPump } from '../../../src/transport/completions.js';
import { eventually } from '../../kit/eventually.js';

const SLOTS = 64;
const SLOT_BYTES = 16_384;
/** Bytes that the target may read and write, behind the slots. */
export const MEMORY_BYTES = 2 ** 21;

const HOST_ID = Buffer.alloc(16, 7);

/** Property Set that enables a controller. */
export const ENABLING: CommandFields = {
  opcode: FABRICS_OPCODE,
  fabricsType: FabricsType.PROPERTY_SET,
  dwords: [0, Property.CONFIGURATION, CONFIGURATION | ENABLE],
};

export class RawHost {
  #responses: Response[] = [];
  /** Whether it posts no receives any more. */
  isDeaf = false;
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

  /** Connects an admin queue whose controller is ready. @param kato keep-alive timeout in ms */
  static async enabled(device: Device, host: string, nqn: string, kato = 0): Promise<RawHost> {
    const raw = await RawHost.connect(device, host, NVME_PORT);
    const { status, result } = await raw.ask(raw.connectCommand(nqn, 0, ANY_CONTROLLER, 31, kato));
    expect(status).toBe(0);
    raw.cntlid = Number(result & 0xffffn);
    expect((await raw.ask(ENABLING)).status).toBe(0);
    return raw;
  }

  /** Id of the controller, once it is enabled. */
  cntlid = 0;

  /** Returns Connect, whose data is in the memory for data. */
  connectCommand(nqn: string, qid: number, cntlid: number, size = 31, kato = 0): CommandFields {
    const hostNqn = 'nqn.2026-01.com.example:raw';
    encodeConnectData({ hostId: HOST_ID, cntlid, subsystemNqn: nqn, hostNqn }).copy(this.data);
    const dwords = [qid << 16, size, kato];
    return { opcode: FABRICS_OPCODE, fabricsType: FabricsType.CONNECT, dwords, data: this.keyed(1024) };
  }

  /** Describes the first bytes of the memory for data. */
  keyed(length: number): DataDescriptor {
    return inMemory(this.address, this.memory.rkey, length);
  }

  /** Sends a command and returns its response. */
  ask(command: CommandFields | Buffer, cid = 1): Promise<Response> {
    const capsule = Buffer.isBuffer(command) ? command : encodeCommand(command, cid);
    this.send(capsule);
    return this.response(capsule.readUInt16LE(2));
  }

  /** Waits for the response to a command. */
  async response(cid: number): Promise<Response> {
    await eventually(() => expect(this.#responses.map((response) => response.cid)).toContain(cid));
    const found = this.#responses.find((response) => response.cid === cid) as Response;
    this.#responses = this.#responses.filter((response) => response !== found);
    return found;
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
    this.qp.postSend({ opcode: 'SEND', sgList: this.memory.sge(at, capsule.length) });
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
    this.qp.postRecv({ wrId: slot, sgList: this.memory.sge(at, RESPONSE_BYTES) });
  }

  #take({ opcode, status, wrId, hasInvalidated, invalidatedRkey }: Wc): void {
    if (status !== 0 || opcode !== WcOpcode.RECV) return;
    if (hasInvalidated) this.invalidated.push(invalidatedRkey);
    const at = SLOTS * SLOT_BYTES + wrId * RESPONSE_BYTES;
    this.#responses.push(decodeResponse(Buffer.from(this.memory.buffer.subarray(at, at + RESPONSE_BYTES))));
    if (!this.isDeaf) this.#postReceive(wrId);
  }

  async #awaitEnd(): Promise<void> {
    for await (const { type } of this.id.channel) if (type === 'DISCONNECTED' || type === 'DEVICE_REMOVAL') break;
    this.#hasEnded = true;
  }
}
