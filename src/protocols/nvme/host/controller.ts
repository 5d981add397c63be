/** A controller as its host sees it: connects the queues, finds the namespaces, and keeps the connection alive. */

import { lookup } from 'node:dns/promises';
import { EventEmitter } from 'node:events';
import { isIP } from 'node:net';
import { Deferred } from '../../../base/deferred.js';
import { Scope } from '../../../base/scope.js';
import { clearInterval, nextTick, performance, setInterval, sleep } from '../../../base/timers.js';
import { useDevice } from '../../../deviceuse.js';
import { createCmId, type Device, type Pd, VerbsError } from '../../../index.js';
import { TransferBuffers } from '../buffers.js';
import {
  DISCOVERY_RECORD_BYTES,
  type DiscoveryEntry,
  decodeDiscoveryHead,
  decodeDiscoveryRecord,
} from '../discovery.js';
import { NvmeError, Status } from '../status.js';
import { CONTROLLER, NAMESPACE, SGLS } from '../structures.js';
import {
  ADMIN_ENTRIES,
  AdminOpcode,
  ANY_CONTROLLER,
  broken,
  Cns,
  COMMAND_BYTES,
  CONFIGURATION,
  type CommandFields,
  ENABLE,
  encodeConnectData,
  FABRICS_OPCODE,
  FATAL,
  FabricsType,
  Feature,
  IDENTIFY_BYTES,
  inMemory,
  LogPage,
  NAMESPACE_NOTICES,
  NAMESPACES_CHANGED,
  Property,
  READY,
  SHUTDOWN_COMPLETE,
  SHUTDOWN_MASK,
  SHUTDOWN_NORMAL,
} from '../wire.js';
import { type TargetLimits, targetLimits } from './limits.js';
import { NvmeNamespace } from './namespace.js';
import {
  type ConnectSettings,
  connectSettings,
  discoverSettings,
  type NvmeConnectOptions,
  type NvmeDiscoverOptions,
} from './options.js';
import { HostQueue, type SubmitOptions } from './queue.js';

/** Bytes of data that we send with a command, if the target takes as many. */
const MAX_CAPSULE_DATA_BYTES = 4096;
/** Buffers for the data of a controller. */
const BUFFERS = { small: 64, large: 16, access: ['localWrite', 'remoteRead', 'remoteWrite'] } as const;
/** A target that says nothing may take so long to get ready, and to shut down (ms). */
const SHUTDOWN_MS = 5000;
const POLL_MS = 2;
/** Records of a discovery log, attempts to read one that changes, and namespaces of a subsystem, at most. */
const MAX_RECORDS = 4096;
const MAX_DISCOVERIES = 10;
const MAX_NAMESPACES = 16_384;

/** Events of a controller. */
export interface NvmeControllerEvents {
  /** Namespaces have come or gone: `namespaces` has those that are there now. */
  namespaces: [];
  /** The controller is closed; with the error when the connection was lost. */
  close: [error?: Error];
}

/** The parts of a device that a controller has. */
interface Parts {
  /** All of it. */
  readonly scope: Scope;
  readonly device: Device;
  readonly address: string;
  readonly pd: Pd;
  readonly buffers: TransferBuffers;
}

/**
 * A controller of a subsystem, which `connect` has connected. When the connection is lost, its calls are rejected, and
 * the event `close` is emitted with the error; it does not connect again.
 */
export class NvmeController extends EventEmitter<NvmeControllerEvents> {
  readonly #settings: ConnectSettings;
  readonly #scope: Scope;
  readonly #device: Device;
  readonly #address: string;
  readonly #pd: Pd;
  readonly #buffers: TransferBuffers;
  readonly #queues: HostQueue[] = [];
  #cntlid = ANY_CONTROLLER;
  #capsuleDataBytes = 0;
  #limits: TargetLimits | undefined;
  #namespaces: readonly NvmeNamespace[] = [];
  #keepAliveTimer: NodeJS.Timeout | undefined;
  #next = 0;
  #failure: Error | undefined;
  /** Resolves when a queue has failed. */
  readonly #lost = new Deferred<void>();
  #closed: Promise<void> | undefined;

  private constructor(settings: ConnectSettings, { scope, device, address, pd, buffers }: Parts) {
    super();
    this.#settings = settings;
    this.#scope = scope;
    this.#device = device;
    this.#address = address;
    this.#pd = pd;
    this.#buffers = buffers;
  }

  /** @internal */
  static async connect(options: NvmeConnectOptions): Promise<NvmeController> {
    const controller = await NvmeController.#open(connectSettings(options));
    try {
      await controller.#connectAll();
      return controller;
    } catch (error) {
      await controller.close();
      throw error;
    }
  }

  /** @internal Reads the discovery log. */
  static async discover(options: NvmeDiscoverOptions): Promise<DiscoveryEntry[]> {
    const settings = discoverSettings(options);
    const controller = await NvmeController.#open(settings);
    try {
      await controller.#connectAdmin();
      return await controller.#readDiscoveryLog();
    } finally {
      await controller.close();
    }
  }

  static async #open(settings: ConnectSettings): Promise<NvmeController> {
    const { host } = settings;
    const address = isIP(host) ? host : (await lookup(host)).address;
    return Scope.open(async (scope) => {
      const { device } = scope.add(await useDevice(settings.device, { peer: address }));
      const pd = scope.add(await device.allocPd());
      const buffers = scope.add(await TransferBuffers.open(pd, BUFFERS));
      return new NvmeController(settings, { scope, device, address, pd, buffers });
    });
  }

  /** The namespaces of the subsystem, in the order of their ids. The event `namespaces` tells of others. */
  get namespaces(): readonly NvmeNamespace[] {
    return this.#namespaces;
  }

  /** The namespace of an id. @throws VerbsError ENODEV if there is none */
  namespace(nsid: number): NvmeNamespace {
    const found = this.#namespaces.find((namespace) => namespace.nsid === nsid);
    if (found === undefined) throw new VerbsError('ENODEV', `the subsystem has no namespace ${nsid}`);
    return found;
  }

  /** Shuts the controller down, so that the target makes everything durable, and disconnects. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---- connecting ----

  async #connectAll(): Promise<void> {
    const capabilities = await this.#connectAdmin();
    const { keepAlive } = this.#settings;
    if (keepAlive > 0)
      this.#keepAliveTimer = setInterval(() => void this.#keepAlive().catch(() => {}), keepAlive / 2).unref();
    const identity = await this.#identify({ cns: Cns.CONTROLLER });
    if (!(identity.readUInt32LE(CONTROLLER.SGLS) & SGLS.KEYED))
      throw new VerbsError('EOPNOTSUPP', 'the target takes no keyed SGLs');
    if (identity.readUInt16LE(CONTROLLER.ICDOFF) === 0)
      this.#capsuleDataBytes = Math.max(0, identity.readUInt32LE(CONTROLLER.IOCCSZ) * 16 - COMMAND_BYTES);
    const commandSet = await this.#identify({ cns: Cns.CONTROLLER_OF_COMMAND_SET }).catch(unknown);
    this.#limits = targetLimits(capabilities, identity, commandSet);
    await this.#connectIo(Number(capabilities & 0xffffn) + 1);
    const hasNotices = (identity.readUInt32LE(CONTROLLER.OAES) & NAMESPACE_NOTICES) !== 0;
    if (hasNotices) {
      const dwords = [Feature.ASYNC_EVENTS, NAMESPACE_NOTICES];
      await this.#admin('Set Features', { opcode: AdminOpcode.SET_FEATURES, dwords });
    }
    this.#namespaces = await this.#findNamespaces();
    if (hasNotices) void this.#watchNamespaces().catch((error) => this.#fail(error));
  }

  /** Finds the namespaces again whenever the target says that some have changed. */
  async #watchNamespaces(): Promise<void> {
    for (;;) {
      const event = { opcode: AdminOpcode.ASYNC_EVENT_REQUEST };
      const result = await this.#admin('Async Event Request', event, { isUntimed: true });
      if (Number(result & 0xff_ffffn) !== NAMESPACES_CHANGED) continue;
      // The target tells of the next change once its log is read.
      await this.#readLog(LogPage.CHANGED_NAMESPACES, 0, IDENTIFY_BYTES);
      this.#namespaces = await this.#findNamespaces();
      // a listener that throws is not an error of the connection
      nextTick(() => this.emit('namespaces'));
    }
  }

  /** @returns the property CAPABILITIES */
  async #connectAdmin(): Promise<bigint> {
    const { keepAlive } = this.#settings;
    const admin = await this.#connectQueue(0, ADMIN_ENTRIES, 0);
    this.#cntlid = Number((await this.#connectCommand(admin, 0, ADMIN_ENTRIES, keepAlive)) & 0xffffn);
    const capabilities = await this.#getProperty(Property.CAPABILITIES, 1);
    await this.#setConfiguration(CONFIGURATION | ENABLE);
    await this.#awaitStatus(READY, Number((capabilities >> 24n) & 0xffn) * 500, 'get ready');
    return capabilities;
  }

  /** @param most entries that the target allows a queue */
  async #connectIo(most: number): Promise<void> {
    const { queueSize, ioQueues } = this.#settings;
    const entries = Math.min(queueSize, most);
    // one entry is never used (NVM Express base specification, "Queue Size")
    if (entries < 2) throw broken(`its queues have ${most} entry, must have at least 2`);
    const asked = ((ioQueues - 1) << 16) | (ioQueues - 1);
    const granted = await this.#admin('Set Features', {
      opcode: AdminOpcode.SET_FEATURES,
      dwords: [Feature.QUEUE_COUNT, asked],
    });
    const count = Math.min(ioQueues, Number(granted & 0xffffn) + 1, Number((granted >> 16n) & 0xffffn) + 1);
    const capsuleDataBytes = Math.min(this.#capsuleDataBytes, MAX_CAPSULE_DATA_BYTES);
    for (let qid = 1; qid <= count; qid++) {
      const queue = await this.#connectQueue(qid, entries, capsuleDataBytes);
      await this.#connectCommand(queue, qid, entries, 0);
    }
  }

  async #connectQueue(qid: number, entries: number, capsuleDataBytes: number): Promise<HostQueue> {
    const { port, timeout: timeoutMs } = this.#settings;
    const id = createCmId(this.#device);
    try {
      await id.resolveAddr(this.#address, port);
      await id.resolveRoute();
    } catch (error) {
      await id.close();
      throw error;
    }
    const options = { qid, entries, cntlid: qid === 0 ? 0 : this.#cntlid, capsuleDataBytes, timeoutMs };
    const queue = await HostQueue.connect(id, this.#pd, options, (error) => this.#fail(error));
    this.#queues.push(queue);
    return queue;
  }

  /** @returns the result of Connect: the id of the controller */
  async #connectCommand(queue: HostQueue, qid: number, entries: number, keepAlive: number): Promise<bigint> {
    const { nqn: subsystemNqn, hostNqn, hostId } = this.#settings;
    const data = encodeConnectData({
      hostId,
      cntlid: qid === 0 ? ANY_CONTROLLER : this.#cntlid,
      subsystemNqn,
      hostNqn,
    });
    return this.#buffers.use(data.length, (buffer) => {
      buffer.bytes.set(data);
      return queue.submit('Connect', {
        opcode: FABRICS_OPCODE,
        fabricsType: FabricsType.CONNECT,
        dwords: [qid << 16, entries - 1, keepAlive],
        data: inMemory(buffer.address, buffer.rkey, data.length),
      });
    });
  }

  async #findNamespaces(): Promise<NvmeNamespace[]> {
    const namespaces: NvmeNamespace[] = [];
    let seen = 0;
    for (let last = 0; ; ) {
      const list = await this.#identify({ cns: Cns.ACTIVE_NAMESPACES, nsid: last });
      const ids = Array.from({ length: IDENTIFY_BYTES / 4 }, (_, i) => list.readUInt32LE(4 * i)).filter(
        (id) => id > last,
      );
      seen += ids.length;
      if (seen > MAX_NAMESPACES) throw broken(`it has more than ${MAX_NAMESPACES} namespaces`);
      for (const nsid of ids) {
        const identity = await this.#identify({ cns: Cns.NAMESPACE, nsid }).catch(absent);
        if (identity === undefined || identity.readBigUInt64LE(NAMESPACE.NCAP) === 0n) continue;
        const known = this.#namespaces.find((namespace) => namespace.is(nsid, identity));
        if (known !== undefined) {
          namespaces.push(known);
          continue;
        }
        const [buffers, queue] = [() => this.#usableBuffers(), () => this.#ioQueue()];
        const limits = this.#limits as TargetLimits;
        namespaces.push(new NvmeNamespace({ nsid, identity, limits, buffers, queue }));
      }
      if (ids.length < IDENTIFY_BYTES / 4) return namespaces;
      last = ids.at(-1) as number;
    }
  }

  #usableBuffers(): TransferBuffers {
    if (this.#failure !== undefined) throw this.#failure;
    return this.#buffers;
  }

  /** The queues take turns. */
  #ioQueue(): HostQueue {
    if (this.#failure !== undefined) throw this.#failure;
    this.#next = (this.#next + 1) % (this.#queues.length - 1);
    return this.#queues[1 + this.#next] as HostQueue;
  }

  // ---- admin commands ----

  async #admin(what: string, fields: CommandFields, options?: SubmitOptions): Promise<bigint> {
    return (this.#queues[0] as HostQueue).submit(what, fields, options);
  }

  #keepAlive(): Promise<bigint> {
    return this.#admin('Keep Alive', { opcode: AdminOpcode.KEEP_ALIVE });
  }

  async #identify({ cns, nsid = 0 }: { cns: Cns; nsid?: number }): Promise<Buffer> {
    return this.#read('Identify', { opcode: AdminOpcode.IDENTIFY, nsid, dwords: [cns] }, IDENTIFY_BYTES);
  }

  async #readDiscoveryLog(): Promise<DiscoveryEntry[]> {
    for (let attempt = 0; attempt < MAX_DISCOVERIES; attempt++) {
      const read = (at: number) =>
        this.#readLog(LogPage.DISCOVERY, at * DISCOVERY_RECORD_BYTES, DISCOVERY_RECORD_BYTES);
      const head = decodeDiscoveryHead(await read(0));
      if (head.records > MAX_RECORDS)
        throw broken(`its discovery log has ${head.records} records, must have at most ${MAX_RECORDS}`);
      const entries: DiscoveryEntry[] = [];
      for (let i = 1; i <= head.records; i++) {
        const entry = decodeDiscoveryRecord(await read(i));
        if (entry !== undefined) entries.push(entry);
      }
      const after = decodeDiscoveryHead(await read(0));
      if (after.generation === head.generation) return entries;
    }
    throw broken(`its discovery log has changed ${MAX_DISCOVERIES} times while it was read`);
  }

  #readLog(page: LogPage, offset: number, bytes: number): Promise<Buffer> {
    const dwords = bytes / 4 - 1;
    return this.#read(
      'Get Log Page',
      { opcode: AdminOpcode.GET_LOG_PAGE, dwords: [page | (dwords << 16), 0, offset] },
      bytes,
    );
  }

  /** Sends an admin command that reads data. */
  #read(what: string, fields: CommandFields, bytes: number): Promise<Buffer> {
    return this.#buffers.use(bytes, async ({ bytes: data, address, rkey }) => {
      await this.#admin(what, { ...fields, data: inMemory(address, rkey, bytes) });
      return Buffer.from(data);
    });
  }

  /** @param size 0: 4 bytes, 1: 8 bytes */
  #getProperty(offset: Property, size: 0 | 1): Promise<bigint> {
    return this.#admin('Property Get', {
      opcode: FABRICS_OPCODE,
      fabricsType: FabricsType.PROPERTY_GET,
      dwords: [size, offset],
    });
  }

  async #setConfiguration(value: number): Promise<void> {
    await this.#admin('Property Set', {
      opcode: FABRICS_OPCODE,
      fabricsType: FabricsType.PROPERTY_SET,
      dwords: [0, Property.CONFIGURATION, value],
    });
  }

  /** @throws VerbsError EIO, ETIMEDOUT */
  async #awaitStatus(bits: number, timeoutMs: number, what: string): Promise<void> {
    for (const end = performance.now() + timeoutMs; ; ) {
      const status = Number(await this.#getProperty(Property.STATUS, 0));
      if (status & FATAL) throw new VerbsError('EIO', `the controller did not ${what}: it has a fatal status`);
      if ((status & bits) === bits) return;
      if (performance.now() > end)
        throw new VerbsError('ETIMEDOUT', `the controller did not ${what} within ${timeoutMs} ms`);
      await sleep(POLL_MS);
    }
  }

  // ---- the end ----

  #fail(error: Error): void {
    this.#lost.resolve();
    if (this.#failure !== undefined || this.#closed !== undefined) return;
    this.#failure = error;
    void this.close();
  }

  async #close(): Promise<void> {
    clearInterval(this.#keepAliveTimer);
    if (this.#failure === undefined && this.#queues.length > 0)
      await Promise.race([this.#shutDown().catch(() => {}), this.#lost.promise]);
    const lost = this.#failure;
    this.#failure ??= new VerbsError('ECANCELED', 'the controller was closed');
    // I/O queues first, as the target keeps the controller as long as it has an admin queue
    for (const queue of this.#queues.reverse()) await queue.close(this.#failure);
    await this.#scope.close();
    this.emit('close', ...(lost === undefined ? [] : [lost]));
  }

  async #shutDown(): Promise<void> {
    await this.#setConfiguration(((CONFIGURATION | ENABLE) & ~SHUTDOWN_MASK) | SHUTDOWN_NORMAL);
    await this.#awaitStatus(SHUTDOWN_COMPLETE, SHUTDOWN_MS, 'shut down');
  }
}

/** Ignores that a target does not have a structure of Identify. @throws any other error */
function unknown(error: unknown): undefined {
  if (!(error instanceof NvmeError)) throw error;
  return undefined;
}

/** Ignores that a namespace has been removed since it was listed. @throws any other error */
function absent(error: unknown): undefined {
  if (!(error instanceof NvmeError && error.status === Status[Status.INVALID_NAMESPACE])) throw error;
}
