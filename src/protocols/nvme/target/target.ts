/**
 * A target of NVMe over RDMA: hosts connect to its subsystems, and use the namespaces in them as disks.
 *
 * Each connection (connection.ts) is one queue (queue.ts). Its first command, Connect, makes a controller
 * (controller.ts) or joins one.
 */

import { array, type Checks, callable, checkOptions, hostName, integer, required } from '../../../base/options.js';
import { Scope } from '../../../base/scope.js';
import { callProgram } from '../../../base/uncaught.js';
import { type DeviceUse, openedDevice } from '../../../deviceuse.js';
import { onEachDevice, type ServiceAddress, type ServiceOnDevice, type ServiceOnDevices } from '../../../eachdevice.js';
import { type CmAddress, type CmId, type Device, type Pd, VerbsError } from '../../../index.js';
import { acceptAll, listen } from '../../../transport/acceptor.js';
import { WATCHED } from '../../../transport/peerwatch.js';
import { TransferBuffers } from '../buffers.js';
import { discoveryLog } from '../discovery.js';
import { CommandError, Status } from '../status.js';
import {
  ADMIN_ENTRIES,
  ANY_CONTROLLER,
  CONNECT_BYTES,
  CONNECT_FIELD,
  CONNECT_OFFSET,
  DISCOVERY_NQN,
  decodeConnectData,
  decodeConnectRequest,
  encodeConnectReply,
  FABRICS_OPCODE,
  FabricsType,
  NVME_PORT,
  RejectStatus,
} from '../wire.js';
import type { CommandContext } from './commandcontext.js';
import { type ConnectionOwner, HostConnection, reject } from './connection.js';
import { Controller } from './controller.js';
import { type NamespaceOptions, newNamespace, type SubsystemOptions, subsystemsOf } from './options.js';
import type { Subsystem } from './subsystem.js';

/** Options of `createTarget`. */
export interface NvmeTargetOptions {
  /** Device. Default: those that the target opens, one for each interface. */
  readonly device?: Device;
  /** Name or address of ours. Default: all of the device; without a device, those of all interfaces of the host. */
  readonly host?: string;
  /** Port of rdma_cm; 0 = any free port. Default 4420. */
  readonly port?: number;
  /** Subsystems that hosts may connect to, besides that of discovery. */
  readonly subsystems: readonly SubsystemOptions[];
  /** Called when a host's controller or connection has ended by an error. */
  readonly onError?: (error: Error, host: { readonly address: string; readonly nqn: string | undefined }) => void;
}

const CHECKS: Checks<NvmeTargetOptions> = {
  device: openedDevice,
  host: hostName,
  port: integer(0, 65535),
  subsystems: required(array),
  onError: callable,
};

const IO_ENTRIES = 128;
const MAX_IO_QUEUES = 128;
/** Data that a command on an I/O queue may carry: a block of 4 KiB. Connect on the admin queue carries none. */
const CAPSULE_DATA_BYTES = 4096;
/** Buffers for the data of all hosts. */
const BUFFERS = { small: 128, large: 64, isShared: true } as const;
/** Result of Connect: the offset that follows is one in the data, not in the command. */
const IN_DATA = 0x10000;

/** The part of a target on one device. */
interface TargetOnDevice extends ServiceOnDevice {
  readonly listener: CmId;
}

/** A target of NVMe over RDMA. `createTarget` makes it. */
export class NvmeTarget {
  readonly #options: NvmeTargetOptions;
  readonly #subsystems: ReadonlyMap<string, Subsystem>;
  readonly #connections = new Set<HostConnection>();
  /** Namespaces that were removed, and whose last commands are under way. */
  readonly #closing = new Set<Promise<void>>();
  readonly #owner: ConnectionOwner = {
    connect: (context, connection) => this.#connect(context, connection),
    onFault: (error, connection) => this.#report(error, connection),
    onClosed: (connection) => void this.#connections.delete(connection),
  };
  /** The devices, with what the target has on them. */
  #devices: ServiceOnDevices<TargetOnDevice> | undefined;
  #closed: Promise<void> | undefined;

  private constructor(options: NvmeTargetOptions, subsystems: ReadonlyMap<string, Subsystem>) {
    this.#options = options;
    this.#subsystems = subsystems;
  }

  /** @internal */
  static async open(options: NvmeTargetOptions): Promise<NvmeTarget> {
    const checked = checkOptions('createTarget', options, CHECKS);
    const target = new NvmeTarget(checked, subsystemsOf(checked.subsystems));
    const { device, host, port = NVME_PORT } = checked;
    target.#devices = await onEachDevice(device, { host, port }, (use, at) => target.#listen(use, at));
    return target;
  }

  #listen({ device }: DeviceUse, at: ServiceAddress): Promise<TargetOnDevice> {
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd());
      const buffers = scope.add(await TransferBuffers.open(pd, BUFFERS));
      const listener = scope.add(await listen(device, at));
      // Each connection reports the failure of the device.
      void acceptAll(
        listener,
        (request) => this.#accept(request, pd, buffers),
        () => {},
      );
      const { port } = listener.localAddress as CmAddress;
      return { port, listener, close: () => scope.close() };
    });
  }

  /** Port of rdma_cm on which the target listens. */
  get port(): number {
    return this.#devices?.port as number;
  }

  /** Number of hosts' controllers. */
  get controllers(): number {
    return new Set([...this.#connections].map(({ controller }) => controller).filter(Boolean)).size;
  }

  /**
   * Adds a namespace to a subsystem. Connected hosts are told, and find it.
   * @returns its id
   * @throws TypeError, RangeError for wrong options; VerbsError ENOENT when the subsystem does not exist
   */
  addNamespace(nqn: string, options: NamespaceOptions): number {
    const subsystem = this.#subsystem(nqn);
    const namespace = newNamespace(subsystem, options);
    subsystem.addNamespace(namespace);
    return namespace.nsid;
  }

  /**
   * Removes a namespace. Connected hosts are told, and commands for it are refused. Resolves when the commands that it
   * has are done, and its storage is durable and closed.
   * @throws VerbsError ENOENT when the subsystem or the namespace does not exist; any error of the storage
   */
  async removeNamespace(nqn: string, nsid: number): Promise<void> {
    const namespace = this.#subsystem(nqn).removeNamespace(nsid);
    if (namespace === undefined) throw new VerbsError('ENOENT', `${nqn} has no namespace ${nsid}`);
    const closed = namespace.close();
    this.#closing.add(closed);
    await closed.finally(() => this.#closing.delete(closed));
  }

  #subsystem(nqn: string): Subsystem {
    const subsystem = nqn === DISCOVERY_NQN ? undefined : this.#subsystems.get(nqn);
    if (subsystem === undefined) throw new VerbsError('ENOENT', `there is no subsystem ${nqn}`);
    return subsystem;
  }

  /**
   * Disconnects all hosts, closes the storages, and resolves when everything is written.
   * @throws the first error of a storage; all storages are closed in any case
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    await Promise.all((this.#devices?.all() ?? []).map(({ listener }) => listener.close()));
    for (const { controller } of this.#connections) controller?.end();
    await Promise.all([...this.#connections].map((connection) => connection.close()));
    await this.#devices?.close();
    const namespaces = [...this.#subsystems.values()].flatMap((subsystem) => [...subsystem.namespaces.values()]);
    const closed = await Promise.allSettled([...namespaces.map((namespace) => namespace.close()), ...this.#closing]);
    for (const result of closed) if (result.status === 'rejected') throw result.reason;
  }

  async #accept(id: CmId, pd: Pd, buffers: TransferBuffers): Promise<void> {
    const request = decodeConnectRequest(id.request?.privateData ?? new Uint8Array(0));
    if (typeof request === 'number') return reject(id, request);
    const entries = request.hostSendQueueSize + 1;
    const isAdmin = request.qid === 0;
    if (entries > (isAdmin ? ADMIN_ENTRIES : IO_ENTRIES)) return reject(id, RejectStatus.HOST_SEND_QUEUE_SIZE);
    const connection = new HostConnection(id, this.#owner);
    this.#connections.add(connection);
    try {
      const capsuleDataBytes = isAdmin ? 0 : CAPSULE_DATA_BYTES;
      await connection.open(pd, { entries, capsuleDataBytes }, buffers.of(connection.remoteAddress));
    } catch {
      await connection.close(RejectStatus.NO_RESOURCES);
      return;
    }
    try {
      await id.accept({ privateData: encodeConnectReply(entries), ...WATCHED });
    } catch {
      // the host has given up
      await connection.close();
      return;
    }
    await connection.untilDisconnected();
  }

  /** Connect, the first command of a queue. @returns the id of the controller @throws CommandError */
  async #connect(context: CommandContext, connection: HostConnection): Promise<bigint> {
    const { command } = context;
    if (command.opcode !== FABRICS_OPCODE || command.fabricsType !== FabricsType.CONNECT)
      throw new CommandError(Status.INVALID_OPCODE);
    const data = decodeConnectData(await context.fetch(CONNECT_BYTES));
    const { recordFormat, qid, sqSize, keepAlive: keepAliveMs } = command.connect;
    if (recordFormat !== 0) throw new CommandError(Status.CONNECT_INCOMPATIBLE_FORMAT);
    if (qid > MAX_IO_QUEUES) throw invalidParameter(CONNECT_FIELD.QID);
    if (sqSize === 0 || sqSize >= (qid === 0 ? ADMIN_ENTRIES : IO_ENTRIES))
      throw invalidParameter(CONNECT_FIELD.SQSIZE);
    const subsystem = this.#subsystems.get(data.subsystemNqn);
    if (subsystem === undefined) throw invalidParameter(IN_DATA + CONNECT_OFFSET.subsystemNqn);
    if (!subsystem.admits(data.hostNqn))
      throw new CommandError(Status.CONNECT_INVALID_HOST, BigInt(IN_DATA + CONNECT_OFFSET.hostNqn));
    const { cntlid, hostNqn, hostId } = data;
    let controller = qid === 0 ? undefined : subsystem.controller(cntlid);
    const isOwn = controller?.isReady && controller.hostNqn === hostNqn && controller.hostId.equals(hostId);
    if (qid === 0 ? cntlid !== ANY_CONTROLLER : !isOwn) throw invalidParameter(IN_DATA + CONNECT_OFFSET.cntlid);
    await connection.grow();
    controller ??= subsystem.add((id) =>
      this.#newController(connection, { cntlid: id, subsystem, hostNqn, hostId, keepAliveMs }),
    );
    if (controller === undefined) throw new CommandError(Status.CONNECT_CONTROLLER_BUSY);
    if (!controller.addQueue(qid)) throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    connection.join(controller, qid);
    return BigInt(controller.cntlid);
  }

  #newController(
    connection: HostConnection,
    init: Pick<Controller, 'cntlid' | 'subsystem' | 'hostNqn' | 'hostId'> & { readonly keepAliveMs: number },
  ): Controller {
    const controller: Controller = new Controller({
      ...init,
      queueEntries: IO_ENTRIES,
      capsuleDataBytes: CAPSULE_DATA_BYTES,
      maxIoQueues: MAX_IO_QUEUES,
      ...(init.subsystem.nqn === DISCOVERY_NQN && { discoveryLog: () => this.#discoveryLog(connection.local) }),
      onEnd: (error) => {
        for (const each of this.#connections) if (each.controller === controller) void each.close();
        if (error !== undefined) this.#report(error, connection);
      },
    });
    return controller;
  }

  #report(error: Error, { remoteAddress, controller }: HostConnection): void {
    const host = { address: remoteAddress, nqn: controller?.hostNqn };
    callProgram(() => this.#options.onError?.(error, host), undefined);
  }

  /** Names the subsystems at the end by which the host reaches the target. */
  #discoveryLog({ address, port }: CmAddress): Buffer {
    return discoveryLog(
      [...this.#subsystems.keys()].map((nqn) => ({ nqn, address, port })),
      0,
    );
  }
}

/** @param offset of the field, in the command or, above IN_DATA, in the data */
const invalidParameter = (offset: number) => new CommandError(Status.CONNECT_INVALID_PARAMETERS, BigInt(offset));
