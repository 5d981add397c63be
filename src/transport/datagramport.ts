/**
 * The queue pair of a datagram socket, with its receive buffers, its requests, and the address handles of its peers.
 * Its owner finds the queue pairs of peers: `src/datagram` asks for them (SIDR), the sockets of rsockets introduce
 * themselves.
 */
import { Scope } from '../base/scope.js';
import { AhCache, type Route } from '../cm/ahcache.js';
import { VerbsError } from '../errors.js';
import { GRH_BYTES, readGrh } from '../verbs/address/grh.js';
import type { AddressHandle } from '../verbs/objects/ah.js';
import type { Context } from '../verbs/objects/context.js';
import type { Mr } from '../verbs/objects/mr.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { Wc } from '../verbs/work/wc.js';
import { Completions } from './completions.js';
import { onDeviceFailure } from './disconnect.js';
import { SendPool } from './pools/sendpool.js';
import { completionError, SendQueue } from './sendqueue.js';

/** Options of `DatagramPort.open`. */
export interface DatagramPortOptions {
  /** Receive buffers. A datagram that arrives while all are in use is dropped. */
  readonly receives: number;
  /** Messages in flight at most. */
  readonly sends: number;
  /** Bytes of a message at most. */
  readonly messageBytes: number;
  /** Brings the queue pair, of type UD, from RESET to RTS. */
  activate(qp: Qp): Promise<void>;
}

/** A datagram in its receive buffer. */
export class Datagram {
  constructor(
    readonly port: DatagramPort,
    /** Number of the buffer. */
    readonly slot: number,
    /** IP address of the sender. */
    readonly source: string,
    /** The address that it was sent to: one of the device, or a group. */
    readonly destination: string,
    /** Number of the sender's queue pair. */
    readonly srcQp: number,
    /** The message. Valid until `release`. */
    readonly bytes: Buffer,
  ) {}

  /** Posts the buffer again. Call it once. */
  release(): void {
    this.port.postReceive(this.slot);
  }
}

/** The owner of a port, as the port sees it. */
export interface DatagramPortListener {
  /** A datagram has arrived. Its buffer serves no other one until `release`. */
  onDatagram(datagram: Datagram): void;
  /** The queue pair or the device has failed. Called once; nothing is delivered then. */
  onFailure(error: Error): void;
}

export class DatagramPort {
  /** The address handles of peers. */
  readonly ahs: AhCache;
  /** The messages that are sent. */
  readonly sendQueue: SendQueue;
  readonly #listener: DatagramPortListener;
  readonly #mr: Mr;
  readonly #slotBytes: number;
  readonly #completions: Completions;
  readonly #scope: Scope;
  readonly #unwatch: () => void;

  private constructor(
    device: Context,
    readonly qp: Qp,
    scope: Scope,
    mr: Mr,
    sendPool: SendPool,
    { receives, sends, messageBytes }: DatagramPortOptions,
    listener: DatagramPortListener,
  ) {
    this.#scope = scope;
    this.#listener = listener;
    this.#mr = mr;
    this.#slotBytes = GRH_BYTES + messageBytes;
    this.ahs = new AhCache(qp.pd);
    this.sendQueue = new SendQueue(qp, sendPool, sends);
    this.#completions = new Completions(
      (wc) => this.#onReceived(wc),
      (error) => listener.onFailure(error),
    );
    this.#completions.use(qp);
    this.#completions.takeAll(qp.recvCq);
    this.#unwatch = onDeviceFailure(device, (error) => this.#completions.fail(error));
    for (let slot = 0; slot < receives; slot++) this.#post(slot);
  }

  /** Opens a port. @throws VerbsError ENOMEM, as `activate`; nothing is left allocated then */
  static open(device: Context, options: DatagramPortOptions, listener: DatagramPortListener): Promise<DatagramPort> {
    const { receives: maxRecvWr, sends: maxSendWr, messageBytes } = options;
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd());
      const recvCq = scope.add(await device.createCq({ cqe: maxRecvWr }));
      const mr = scope.add(await pd.regMr(maxRecvWr * (GRH_BYTES + messageBytes)));
      const sendPool = await SendPool.join(device);
      let qp: Qp | undefined;
      scope.add({ close: () => sendPool.leave(qp) });
      const depths = { maxSendWr, maxRecvWr, maxSendSge: 1, maxRecvSge: 1 };
      qp = scope.add(await pd.createQp({ type: 'UD', sendCq: sendPool.cq.cq, recvCq, ...depths, sqSigAll: false }));
      await options.activate(qp);
      const port = new DatagramPort(device, qp, scope, mr, sendPool, options, listener);
      await sendPool.attach(qp, (wc) => port.#onSent(wc));
      return port;
    });
  }

  /**
   * Returns the latest handle of a route that was resolved: while a message waits, another one may replace it.
   * @throws VerbsError ENOMEM when too many destinations have been resolved since
   */
  handleOf(route: Route): AddressHandle {
    const ah = this.ahs.get(route);
    if (ah === undefined) throw new VerbsError('ENOMEM', 'datagrams to too many destinations wait to be sent');
    return ah;
  }

  /** @internal Posts a buffer, for the datagram that it had. */
  postReceive(slot: number): void {
    if (this.qp.isAlive && this.#mr.isAlive) this.#completions.attempt(() => this.#post(slot));
  }

  #post(slot: number): void {
    this.qp.postRecv({ wrId: slot, sgList: this.#mr.sge(slot * this.#slotBytes, this.#slotBytes) });
  }

  /**
   * Frees everything. Messages in flight may be lost.
   * @param error of the messages that have not left
   */
  async close(error: Error): Promise<void> {
    this.#completions.stop();
    this.#unwatch();
    this.sendQueue.end({ error });
    await this.qp.close();
    this.sendQueue.failInFlight();
    this.ahs.close();
    await this.#scope.close();
  }

  #onReceived({ wrId: slot, byteLen, srcQp }: Wc): void {
    const at = slot * this.#slotBytes;
    const bytes = this.#mr.buffer.subarray(at, at + byteLen);
    const { source, destination } = readGrh(bytes);
    this.#listener.onDatagram(new Datagram(this, slot, source, destination, srcQp, bytes.subarray(GRH_BYTES)));
  }

  #onSent(wc: Wc): void {
    if (this.sendQueue.complete(wc) !== undefined) this.#completions.fail(completionError(wc));
  }
}
