/**
 * A controller of a target: what one host has of a subsystem. It carries out the commands of its queues, keeps the
 * host's settings, and ends when the host is silent for longer than its keep-alive timeout.
 */
import { clearTimeout, performance, setTimeout } from '../../../base/timers.js';
import { VerbsError } from '../../../index.js';
import { CommandError, Status } from '../status.js';
import {
  AdminOpcode,
  ALL_NAMESPACES,
  Cns,
  CONFIGURATION,
  ENABLE,
  FABRICS_OPCODE,
  FATAL,
  FabricsType,
  Feature,
  IDENTIFY_BYTES,
  LogPage,
  NAMESPACE_NOTICES,
  NvmOpcode,
  Property,
  READY,
  SHUTDOWN_COMPLETE,
  SHUTDOWN_MASK,
} from '../wire.js';
import type { CommandContext } from './commandcontext.js';
import { AsyncEvents } from './events.js';
import {
  type ControllerIdentity,
  identifyController,
  identifyDescriptors,
  identifyNamespace,
  identifyNamespaceList,
} from './identify.js';
import type { Namespace } from './namespace.js';
import { MAX_NSID, type Subsystem } from './subsystem.js';

/** Milliseconds that a controller may take to get ready, in units of 500 ms. */
const READY_TIMEOUT_UNITS = 15n;
const VERSION = 0x0001_0300;

/** Features whose value is only kept. */
const KEPT_FEATURES: ReadonlySet<number> = new Set([0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0a]);

/** Result of Abort: the command was not aborted. */
const NOT_ABORTED = 1n;
/** The longest time that Node.js's timers wait (ms). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** Time that a host without keep-alives may be silent, if it only asks for the discovery log (ms). */
const DISCOVERY_SILENCE_MS = 120_000;

export interface ControllerInit {
  readonly cntlid: number;
  readonly subsystem: Subsystem;
  readonly hostNqn: string;
  readonly hostId: Buffer;
  /** Time that the host may be silent in ms; 0 = any. */
  readonly keepAliveMs: number;
  readonly queueEntries: number;
  readonly capsuleDataBytes: number;
  readonly maxIoQueues: number;
  /** For a controller of the discovery subsystem: its log. */
  readonly discoveryLog?: () => Buffer;
  /**
   * Called once, when the controller has ended: its queues must be disconnected.
   * @param error undefined: it ended as it should
   */
  readonly onEnd: (error: Error | undefined) => void;
}

export class Controller {
  readonly cntlid: number;
  readonly subsystem: Subsystem;
  readonly hostNqn: string;
  readonly hostId: Buffer;
  readonly events = new AsyncEvents();
  readonly #init: ControllerInit;
  readonly #qids = new Set<number>();
  #configuration = 0;
  #status = 0;
  #keepAliveMs: number;
  #timer: NodeJS.Timeout | undefined;
  #lastCommand = performance.now();
  #isWriteThrough = false;
  readonly #features = new Map<number, number>();
  #hasEnded = false;

  constructor(init: ControllerInit) {
    this.#init = init;
    this.cntlid = init.cntlid;
    this.subsystem = init.subsystem;
    this.hostNqn = init.hostNqn;
    this.hostId = init.hostId;
    this.#keepAliveMs = init.keepAliveMs;
    this.#watch();
  }

  /** Whether the host has enabled it, so that it takes I/O queues. */
  get isReady(): boolean {
    return (this.#status & READY) !== 0 && !this.#hasEnded;
  }

  /** Adds a queue. @returns whether the controller had none of this id */
  addQueue(qid: number): boolean {
    if (this.#hasEnded || this.#qids.has(qid)) return false;
    this.#qids.add(qid);
    return true;
  }

  /** The host has disconnected a queue; without the admin queue the controller ends. */
  removeQueue(qid: number): void {
    this.#qids.delete(qid);
    if (qid === 0) this.end();
  }

  /** Ends the controller. A second call does nothing. @param error the reason, if that is a fault */
  end(error?: Error): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    clearTimeout(this.#timer);
    this.events.end();
    this.subsystem.remove(this);
    this.#init.onEnd(error);
  }

  /** Carries out a command of a queue. @returns the result, default 0 @throws CommandError */
  async execute(context: CommandContext, qid: number): Promise<bigint | undefined> {
    this.#lastCommand = performance.now();
    const { opcode, fabricsType } = context.command;
    if (opcode === FABRICS_OPCODE && fabricsType === FabricsType.CONNECT)
      throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    if (qid !== 0) return this.#executeIo(context);
    if (opcode !== FABRICS_OPCODE) return this.#executeAdmin(context);
    context.expectNoData();
    if (fabricsType === FabricsType.PROPERTY_GET) return this.#getProperty(context);
    if (fabricsType !== FabricsType.PROPERTY_SET) throw new CommandError(Status.INVALID_OPCODE);
    await this.#setProperty(context);
    return undefined;
  }

  async #executeIo(context: CommandContext): Promise<undefined> {
    const { opcode, nsid } = context.command;
    if (!this.isReady) throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    if (opcode === NvmOpcode.FLUSH && nsid === ALL_NAMESPACES) {
      context.expectNoData();
      await this.#flush();
      return;
    }
    await this.#namespace(nsid).execute(context, this.#isWriteThrough);
  }

  async #executeAdmin(context: CommandContext): Promise<bigint | undefined> {
    if (!this.isReady) throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    switch (context.command.opcode) {
      case AdminOpcode.IDENTIFY:
        await context.give(this.#identify(context));
        return undefined;
      case AdminOpcode.GET_LOG_PAGE:
        await this.#giveLog(context);
        return undefined;
      case AdminOpcode.SET_FEATURES:
        return this.#setFeature(context);
      case AdminOpcode.GET_FEATURES:
        return this.#getFeature(context);
      case AdminOpcode.ASYNC_EVENT_REQUEST:
        context.expectNoData();
        return this.events.request();
      case AdminOpcode.KEEP_ALIVE:
        context.expectNoData();
        if (this.#keepAliveMs === 0) throw new CommandError(Status.KEEP_ALIVE_TIMEOUT_INVALID);
        return undefined;
      case AdminOpcode.ABORT:
        context.expectNoData();
        return NOT_ABORTED;
      default:
        throw new CommandError(Status.INVALID_OPCODE);
    }
  }

  // ---- properties ----

  #getProperty({ command }: CommandContext): bigint {
    const { offset, bytes } = command.property;
    if (bytes !== (offset === Property.CAPABILITIES ? 8 : 4)) throw new CommandError(Status.INVALID_FIELD);
    switch (offset) {
      case Property.CAPABILITIES:
        return this.#capabilities;
      case Property.VERSION:
        return BigInt(VERSION);
      case Property.CONFIGURATION:
        return BigInt(this.#configuration);
      case Property.STATUS:
        return BigInt(this.#status);
      default:
        throw new CommandError(Status.INVALID_FIELD);
    }
  }

  /** Entries of a queue less 1, contiguous queues, the time to get ready, and the NVM command set. */
  get #capabilities(): bigint {
    return BigInt(this.#init.queueEntries - 1) | (1n << 16n) | (READY_TIMEOUT_UNITS << 24n) | (1n << 37n);
  }

  async #setProperty({ command }: CommandContext): Promise<void> {
    const { offset, bytes, value } = command.property;
    if (offset !== Property.CONFIGURATION || bytes !== 4) throw new CommandError(Status.INVALID_FIELD);
    const before = this.#configuration;
    this.#configuration = Number(value & 0xffff_ffffn);
    const isEnabled = (this.#configuration & ENABLE) !== 0;
    if (!isEnabled) this.#status &= ~(READY | FATAL);
    else if ((before & ENABLE) === 0) {
      const isKnown = (this.#configuration & ~(ENABLE | SHUTDOWN_MASK)) === CONFIGURATION;
      this.#status = isKnown ? READY : FATAL;
    }
    if ((this.#configuration & SHUTDOWN_MASK) === 0) this.#status &= ~SHUTDOWN_COMPLETE;
    else if ((this.#status & SHUTDOWN_COMPLETE) === 0) {
      await this.#flush();
      this.#status |= SHUTDOWN_COMPLETE;
    }
  }

  // ---- identify ----

  #identify({ command }: CommandContext): Buffer {
    const { nsid } = command;
    const { namespaces } = this.subsystem;
    const { cns, commandSet } = command.structure;
    switch (cns) {
      case Cns.CONTROLLER:
        return identifyController(this.#identity);
      case Cns.NAMESPACE:
        if (nsid === ALL_NAMESPACES) throw new CommandError(Status.INVALID_NAMESPACE);
        return identifyNamespace(namespaces.get(nsid));
      case Cns.ACTIVE_NAMESPACES:
        if (nsid >= ALL_NAMESPACES - 1) throw new CommandError(Status.INVALID_NAMESPACE);
        return identifyNamespaceList([...namespaces.keys()], nsid);
      case Cns.DESCRIPTORS:
        return identifyDescriptors(this.#namespace(nsid));
      case Cns.CONTROLLER_OF_COMMAND_SET:
        // no limits but those of Identify Controller
        if (commandSet === 0) return Buffer.alloc(IDENTIFY_BYTES);
    }
    throw new CommandError(Status.INVALID_FIELD);
  }

  get #identity(): ControllerIdentity {
    const { queueEntries, capsuleDataBytes, discoveryLog } = this.#init;
    const { nqn, serialNumber } = this.subsystem;
    return {
      ...{ cntlid: this.cntlid, nqn, serialNumber, queueEntries, capsuleDataBytes },
      isDiscovery: discoveryLog !== undefined,
      maxNsid: discoveryLog ? 0 : MAX_NSID,
      asyncEvents: discoveryLog ? 0 : NAMESPACE_NOTICES,
    };
  }

  /** @throws CommandError */
  #namespace(nsid: number): Namespace {
    const namespace = this.subsystem.namespaces.get(nsid);
    if (namespace === undefined) throw new CommandError(Status.INVALID_NAMESPACE);
    return namespace;
  }

  // ---- logs ----

  async #giveLog(context: CommandContext): Promise<void> {
    const { page, isRetained, offset: begin, bytes } = context.command.log;
    if (begin % 4n !== 0n) throw new CommandError(Status.INVALID_FIELD);
    const log = this.#log(page, isRetained);
    await context.send(bytes, (part, offset) => {
      const from = begin + BigInt(offset);
      const rest = from < BigInt(log.length) ? log.subarray(Number(from)) : log.subarray(log.length);
      part.fill(0).set(rest.subarray(0, part.length));
    });
  }

  /** @param isRetained the event that the log tells of is not done with @throws CommandError */
  #log(page: number, isRetained: boolean): Buffer {
    const { discoveryLog } = this.#init;
    if (discoveryLog && page === LogPage.DISCOVERY) return discoveryLog();
    switch (page) {
      case LogPage.ERRORS:
        return Buffer.alloc(0);
      case LogPage.CHANGED_NAMESPACES:
        return this.events.readChanged(isRetained);
      case LogPage.HEALTH:
        return healthLog();
      case LogPage.FIRMWARE:
        return Buffer.from([1]);
      default:
        throw new CommandError(Status.INVALID_LOG_PAGE);
    }
  }

  // ---- features ----

  #setFeature(context: CommandContext): bigint | undefined {
    const { id: feature, value } = context.command.feature;
    context.expectNoData();
    switch (feature) {
      case Feature.QUEUE_COUNT:
        return this.#queueCounts(Math.min(value & 0xffff, value >>> 16) + 1);
      case Feature.VOLATILE_WRITE_CACHE:
        this.#isWriteThrough = (value & 1) === 0;
        return undefined;
      case Feature.ASYNC_EVENTS:
        this.events.enabled = value;
        return undefined;
      case Feature.KEEP_ALIVE_TIMER:
        this.#keepAliveMs = value;
        this.#watch();
        return undefined;
    }
    if (!KEPT_FEATURES.has(feature)) throw new CommandError(Status.INVALID_FIELD);
    this.#features.set(feature, value);
    return undefined;
  }

  async #getFeature(context: CommandContext): Promise<bigint> {
    const { id: feature } = context.command.feature;
    if (feature === Feature.HOST_ID) {
      await context.give(this.hostId);
      return 0n;
    }
    context.expectNoData();
    switch (feature) {
      case Feature.QUEUE_COUNT:
        return this.#queueCounts(this.#init.maxIoQueues);
      case Feature.VOLATILE_WRITE_CACHE:
        return this.#isWriteThrough ? 0n : 1n;
      case Feature.ASYNC_EVENTS:
        return BigInt(this.events.enabled);
      case Feature.KEEP_ALIVE_TIMER:
        return BigInt(this.#keepAliveMs);
    }
    if (!KEPT_FEATURES.has(feature)) throw new CommandError(Status.INVALID_FIELD);
    return BigInt(this.#features.get(feature) ?? 0);
  }

  /** Numbers of submission and completion queues, each less 1. */
  #queueCounts(wanted: number): bigint {
    const count = BigInt(Math.min(wanted, this.#init.maxIoQueues) - 1);
    return (count << 16n) | count;
  }

  // ---- durability and time ----

  async #flush(): Promise<void> {
    for (const namespace of [...this.subsystem.namespaces.values()]) if (!namespace.isReadOnly) await namespace.flush();
  }

  /**
   * Begins an interval of the keep-alive timeout. The controller ends if no command comes within it, else another
   * begins, as in Linux's target. A limit on the time since the last command would be too strict: Linux's host sends a
   * keep-alive up to half of the timeout after the last completion, and a lost frame costs it 2 s more.
   */
  #watch(): void {
    clearTimeout(this.#timer);
    const most = this.#keepAliveMs || (this.#init.discoveryLog ? DISCOVERY_SILENCE_MS : 0);
    if (most === 0 || this.#hasEnded) return;
    const begun = performance.now();
    const look = () => {
      const silent = performance.now() - this.#lastCommand;
      if (this.#lastCommand >= begun) this.#watch();
      else this.end(new VerbsError('ETIMEDOUT', `the host was silent for ${Math.round(silent)} ms`));
    };
    this.#timer = setTimeout(look, Math.min(most, LONGEST_TIMER_MS)).unref();
  }
}

/** SMART / Health Information: nothing has worn. */
function healthLog(): Buffer {
  const data = Buffer.alloc(512);
  data.writeUInt16LE(298, 1); // composite temperature, K
  data[3] = 100; // available spare, %
  data[4] = 10; // its threshold
  return data;
}
