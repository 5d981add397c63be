/** A target whose properties, structures and log a test writes. It has one namespace in memory, and notes commands. */
import { type CmId, createCmId, type Device, type Mr, type Pd, type Qp, WcOpcode } from '../../../src/index.js';
import { discoveryLog } from '../../../src/protocols/nvme/discovery.js';
import { Status } from '../../../src/protocols/nvme/status.js';
import {
  ADMIN_ENTRIES,
  AdminOpcode,
  Cns,
  COMMAND_BYTES,
  Command,
  decodeConnectRequest,
  encodeConnectReply,
  encodeResponse,
  FABRICS_OPCODE,
  FabricsType,
  IDENTIFY_BYTES,
  LogPage,
  NVME_PORT,
  NvmOpcode,
  Property,
} from '../../../src/protocols/nvme/wire.js';
import { CompletionPump } from '../../../src/transport/completions.js';

const ENTRIES = 128;
const CAPSULE_BYTES = 8192;
const DATA_BYTES = 2 ** 18;
/** Entries of a queue less 1, contiguous queues, 7.5 s to get ready, the NVM command set. */
const CAPABILITIES = 127n | (1n << 16n) | (15n << 24n) | (1n << 37n);

/** Changes by a test. */
export interface RawTargetOptions {
  readonly capabilities?: bigint;
  /** Changes Identify Controller. */
  readonly controller?: (data: Buffer) => void;
  /** Changes Identify Namespace. */
  readonly namespace?: (data: Buffer) => void;
  /** Makes the structure of the NVM command set; undefined: there is none. */
  readonly commandSet?: (data: Buffer) => void;
  /** Blocks of the namespace, of 512 bytes. */
  readonly blocks?: bigint;
  /** Answers to Get Log Page of the discovery log. */
  readonly log?: () => Buffer;
  /** Ids in the list of namespaces above an id. */
  readonly namespaces?: (above: number) => readonly number[];
}

/** An I/O command that has come. */
export interface Seen {
  readonly opcode: number;
  readonly blocks: number;
  /** Ranges of Dataset Management: first block and number. */
  readonly ranges?: readonly (readonly [bigint, number])[];
}

export class RawTarget {
  readonly seen: Seen[] = [];
  readonly disk = Buffer.alloc(2 ** 21, 'disk');
  readonly #listener: CmId;
  readonly #options: RawTargetOptions;

  private constructor(listener: CmId, options: RawTargetOptions) {
    this.#listener = listener;
    this.#options = options;
    void (async () => {
      for await (const event of listener.channel)
        if (event.type === 'CONNECT_REQUEST') await this.#serve(event.id).catch(() => {});
    })();
  }

  static async listen(device: Device, options: RawTargetOptions = {}): Promise<RawTarget> {
    const listener = createCmId(device);
    await listener.bindAddr('::', NVME_PORT);
    await listener.listen();
    return new RawTarget(listener, options);
  }

  async close(): Promise<void> {
    await this.#listener.close();
  }

  async #serve(id: CmId): Promise<void> {
    const request = decodeConnectRequest(id.request?.privateData ?? new Uint8Array(0));
    if (typeof request === 'number') return;
    const device = id.device as Device;
    const pd = await device.allocPd();
    const queue = new RawQueue(this.#options, this, request.qid, await makeParts(device, pd, id));
    const entries = request.qid === 0 ? ADMIN_ENTRIES : ENTRIES;
    await id.accept({ privateData: encodeConnectReply(entries) });
    queue.start();
  }
}

async function makeParts(device: Device, pd: Pd, id: CmId) {
  const cq = await device.createCq({ cqe: 1024 });
  const mr = await pd.regMr(ENTRIES * CAPSULE_BYTES + DATA_BYTES);
  const sizes = { maxSendWr: 256, maxRecvWr: ENTRIES, maxInlineData: 64 };
  return { cq, mr, qp: await id.createQp(pd, { sendCq: cq, ...sizes }) };
}

class RawQueue {
  readonly #mr: Mr;
  readonly #qp: Qp;
  readonly #done: (() => void)[] = [];
  #configuration = 0;
  #chain: Promise<void> = Promise.resolve();

  constructor(
    readonly options: RawTargetOptions,
    readonly target: RawTarget,
    readonly qid: number,
    { cq, mr, qp }: Awaited<ReturnType<typeof makeParts>>,
  ) {
    this.#mr = mr;
    this.#qp = qp;
    new CompletionPump(cq, (wc) => {
      if (wc.opcode !== WcOpcode.RECV || !wc.ok) {
        this.#done.shift()?.();
        return;
      }
      const at = wc.wrId * CAPSULE_BYTES;
      const capsule = Buffer.from(mr.buffer.subarray(at, at + wc.byteLen));
      this.#postReceive(wc.wrId);
      this.#chain = this.#chain.then(() => this.#carryOut(capsule)).catch(() => {});
    });
  }

  start(): void {
    for (let slot = 0; slot < ENTRIES; slot++) this.#postReceive(slot);
  }

  #postReceive(slot: number): void {
    if (this.#qp.isAlive) this.#qp.postRecv({ wrId: slot, sgList: this.#mr.sge(slot * CAPSULE_BYTES, CAPSULE_BYTES) });
  }

  async #carryOut(capsule: Buffer): Promise<void> {
    const command = new Command(capsule.subarray(0, COMMAND_BYTES));
    let [status, result] = [Status.SUCCESS, 0n];
    if (command.opcode === FABRICS_OPCODE) result = this.#fabrics(command);
    else if (this.qid === 0) status = await this.#admin(command);
    else status = await this.#io(command, capsule.subarray(COMMAND_BYTES));
    const response = encodeResponse({ cid: command.cid, status, result, sqid: this.qid, sqHead: 0 });
    await this.#post({ opcode: 'SEND', sgList: response });
  }

  #fabrics(command: Command): bigint {
    if (command.fabricsType === FabricsType.CONNECT) return 1n;
    if (command.fabricsType === FabricsType.PROPERTY_SET) {
      this.#configuration = Number(command.u64(48) & 0xffff_ffffn);
      return 0n;
    }
    switch (command.dword(11)) {
      case Property.CAPABILITIES:
        return this.options.capabilities ?? CAPABILITIES;
      case Property.STATUS:
        return BigInt((this.#configuration & 1) | (this.#configuration & 0xc000 ? 8 : 0));
      default:
        return 0n;
    }
  }

  async #admin(command: Command): Promise<Status> {
    const { controller, namespace, commandSet, blocks = 4096n, namespaces, log } = this.options;
    if (command.opcode === AdminOpcode.GET_LOG_PAGE && (command.dword(10) & 0xff) === LogPage.DISCOVERY) {
      const all = log?.() ?? discoveryLog([], 0);
      const at = Number(command.u64(48));
      const part = Buffer.alloc(command.data.length);
      all.subarray(at, at + part.length).copy(part);
      await this.#give(command, part);
      return Status.SUCCESS;
    }
    if (command.opcode !== AdminOpcode.IDENTIFY) return Status.SUCCESS;
    const data = Buffer.alloc(IDENTIFY_BYTES);
    switch (command.dword(10) & 0xff) {
      case Cns.CONTROLLER:
        data.writeUInt16LE((1 << 2) | (1 << 3), 520);
        data.writeUInt32LE((1 << 0) | (1 << 2) | (1 << 20), 536);
        data.writeUInt32LE((64 + 4096) / 16, 1792);
        controller?.(data);
        break;
      case Cns.NAMESPACE:
        for (const at of [0, 8, 16]) data.writeBigUInt64LE(blocks, at);
        data[130] = 9;
        namespace?.(data);
        break;
      case Cns.ACTIVE_NAMESPACES: {
        const ids = namespaces?.(command.nsid) ?? (command.nsid < 1 ? [1] : []);
        for (const [i, nsid] of ids.entries()) data.writeUInt32LE(nsid, 4 * i);
        break;
      }
      case Cns.CONTROLLER_OF_COMMAND_SET:
        if (commandSet === undefined) return Status.INVALID_FIELD;
        commandSet(data);
    }
    await this.#give(command, data);
    return Status.SUCCESS;
  }

  async #io(command: Command, inCapsule: Buffer): Promise<Status> {
    const { opcode } = command;
    const [at, blocks] = [Number(command.u64(40)) * 512, command.u16(48) + 1];
    const { disk, seen } = this.target;
    if (opcode === NvmOpcode.DATASET_MANAGEMENT) {
      const count = (command.dword(10) & 0xff) + 1;
      const data = await this.#fetch(command, 16 * count, inCapsule);
      const ranges = Array.from(
        { length: count },
        (_, i) => [data.readBigUInt64LE(16 * i + 8), data.readUInt32LE(16 * i + 4)] as const,
      );
      seen.push({ opcode, blocks: 0, ranges });
      return Status.SUCCESS;
    }
    seen.push({ opcode, blocks });
    if (opcode === NvmOpcode.READ) await this.#give(command, disk.subarray(at, at + blocks * 512));
    if (opcode === NvmOpcode.WRITE) (await this.#fetch(command, blocks * 512, inCapsule)).copy(disk, at);
    if (opcode === NvmOpcode.WRITE_ZEROES) disk.fill(0, at, at + blocks * 512);
    return Status.SUCCESS;
  }

  async #give({ data: { address, rkey } }: Command, bytes: Buffer): Promise<void> {
    this.#mr.copyIn(bytes, ENTRIES * CAPSULE_BYTES);
    const sgList = this.#mr.sge(ENTRIES * CAPSULE_BYTES, bytes.length);
    await this.#post({ opcode: 'RDMA_WRITE', sgList, remoteAddr: address, rkey });
  }

  async #fetch({ data: { place, address, rkey } }: Command, bytes: number, inCapsule: Buffer): Promise<Buffer> {
    if (place === 'capsule') return inCapsule.subarray(0, bytes);
    const sgList = this.#mr.sge(ENTRIES * CAPSULE_BYTES, bytes);
    await this.#post({ opcode: 'RDMA_READ', sgList, remoteAddr: address, rkey });
    return Buffer.from(this.#mr.buffer.subarray(ENTRIES * CAPSULE_BYTES, ENTRIES * CAPSULE_BYTES + bytes));
  }

  #post(wr: Parameters<Qp['postSend']>[0]): Promise<void> {
    this.#qp.postSend(wr);
    return new Promise((resolve) => this.#done.push(resolve));
  }
}
