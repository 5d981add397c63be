/**
 * A device's way into the communication manager: takes messages off queue pair 1 and puts them there, looks up where to send
 * them, and gives the core the time. There is one for a device, made when first needed, and closed with it.
 */
import { randomBytes } from 'node:crypto';
import { GSI } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import type { Device } from '../verbs/context.js';
import type { Cq } from '../verbs/cq.js';
import type { AsyncEvent } from '../verbs/events.js';
import { GRH_BYTES, readGrh } from '../verbs/grh.js';
import type { Mr } from '../verbs/mr.js';
import { pollAlive } from '../verbs/polling.js';
import { Qp } from '../verbs/qp.js';
import { Resource } from '../verbs/resource.js';
import { LONGEST_TIMER } from '../verbs/waiting.js';
import type { Wc } from '../verbs/wc.js';
import { CmCore } from './core.js';
import type { CoreEvent } from './events.js';
import type { ListenParameters } from './listeners.js';
import { MAD_BYTES } from './mad.js';
import type { Outgoing } from './manager.js';
import { Neighbours } from './neighbours.js';
import { Partitions } from './partitions.js';
import type { PortSpaceName } from './serviceid.js';
import { Ways } from './ways.js';

/** Messages that may arrive between two turns of the event loop. */
const RECEIVES = 512;
const SLOT_BYTES = 304;
const SENDS = 128;
/** Messages that leave in one go, before the event loop goes on: peers have room for some hundreds. */
const BURST = 64;
/** So long the last words may take to leave (ms). */
const LAST_WORDS = 50;
/** Ports that are drawn for those who name none: Linux' range. */
const EPHEMERAL = { from: 32768, to: 61000 };

/** Takes what the core tells about an id or a listener. */
export type Listener = (event: CoreEvent) => void;

const ports = new WeakMap<Device, Promise<CmPort>>();

export class CmPort extends Resource {
  readonly kind = 'cm';
  readonly label = 'manager';
  readonly device: Device;
  readonly core: CmCore;
  readonly #cq: Cq;
  readonly #wcs: readonly Wc[];
  readonly #neighbours: Neighbours;
  readonly #listeners = new Map<number, { readonly tell: Listener; release(): void }>();
  readonly #ids = new Map<number, Listener>();
  readonly #ways: Ways;
  /** To be sent; the way to each is known. */
  readonly #outbox: Outgoing[] = [];
  readonly #boundPorts = new Map<string, number>();
  readonly #dropped = { cm_drop_unreachable: 0, cm_drop_no_grh: 0 };
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #isFlushing = false;
  /** Messages that may leave in this round of the event loop. */
  #room = BURST;

  /** The device's port. @throws VerbsError ENOMEM */
  static of(device: Device): Promise<CmPort> {
    const known = ports.get(device);
    if (known !== undefined) return known;
    device.assertOpen();
    const port = CmPort.#open(device);
    ports.set(device, port);
    port.catch(() => ports.delete(device));
    return port;
  }

  static async #open(device: Device): Promise<CmPort> {
    const made: Resource[] = [];
    const keep = <T extends Resource>(resource: T): T => {
      made.unshift(resource);
      return resource;
    };
    try {
      const pd = keep(await device.allocPd()).attend();
      const sendCq = keep(await device.createCq({ cqe: RECEIVES })).attend();
      const mr = keep(await pd.regMr(RECEIVES * SLOT_BYTES));
      const sizes = { maxSendWr: SENDS, maxRecvWr: RECEIVES, maxSendSge: 1, maxRecvSge: 1, maxInlineData: MAD_BYTES };
      const qp = keep(new Qp(pd, { ...sizes, sendCq, sqSigAll: false }, true));
      await qp.activate({ qkey: GSI.qkey, pkeyIndex: Partitions.of(device).ownIndex });
      return new CmPort(qp, mr);
    } catch (error) {
      for (const resource of made) await resource.close();
      throw error;
    }
  }

  /** Closes with its queue pair, just before. @param qp queue pair 1, ready @param mr what its messages arrive in */
  private constructor(
    readonly qp: Qp,
    readonly mr: Mr,
  ) {
    super([qp]);
    const { device } = qp;
    this.device = device;
    const guid = randomBytes(8);
    // locally administered: nobody was given it
    guid[0] = 2;
    const { exports } = device.card;
    const gids = () => device.gids.map(({ gid }) => gid);
    this.#neighbours = new Neighbours(device.link.names, gids());
    device.on('event', ({ type }: AsyncEvent) => type === 'GID_CHANGE' && this.#neighbours.onGids(gids()));
    this.core = new CmCore({
      others: this.#neighbours,
      partitions: Partitions.of(device),
      guid: guid.readBigUInt64BE(),
      random: () => ((exports.randomPsn() << 16) ^ exports.randomPsn()) >>> 0,
      host: {
        isLocal: (gid) => device.gids.some((entry) => entry.gid === gid),
        get maxMtu() {
          return device.queryPort().activeMtu;
        },
      },
    });
    this.#cq = qp.recvCq;
    this.#wcs = this.#cq.createWcs(64);
    this.#ways = new Ways(qp.pd);
    for (let slot = 0; slot < RECEIVES; slot++) this.#postReceive(slot);
    this.#cq.on('completion', () => this.#receive());
    this.#cq.arm();
    this.opened();
    this.attend();
  }

  /** Milliseconds, as the core counts them. */
  now(): number {
    return performance.now();
  }

  /** Calls the core, and sends and tells what follows from it. @returns what the call returns @throws what it throws */
  run<T>(call: (core: CmCore, now: number) => T): T {
    this.assertOpen();
    try {
      return call(this.core, this.now());
    } finally {
      this.#flush();
    }
  }

  /** What the core tells about an id goes to `listener`, until `forget`. */
  follow(id: number, listener: Listener): void {
    this.#ids.set(id, listener);
  }

  forget(id: number): void {
    this.#ids.delete(id);
  }

  /** From now on requests go to `listener`. @returns a handle @throws VerbsError EADDRINUSE */
  listen(parameters: ListenParameters, listener: Listener): number {
    const handle = this.run((core) => core.listen(parameters));
    try {
      const release = this.#neighbours.take(parameters);
      this.#listeners.set(handle, { tell: listener, release });
      return handle;
    } catch (error) {
      this.core.unlisten(handle);
      throw error;
    }
  }

  unlisten(handle: number): void {
    this.#listeners.get(handle)?.release();
    this.#listeners.delete(handle);
    if (!this.isClosed) this.core.unlisten(handle);
  }

  /**
   * Takes a port of a space; 0 = any that is free. Clients and listeners may share one.
   * @throws VerbsError EADDRINUSE when none is free
   */
  bindPort(space: PortSpaceName, port: number): number {
    const key = (number: number) => `${space}/${number}`;
    const isFree = (number: number) => !this.#boundPorts.has(key(number)) && !this.core.isListening(space, number);
    let chosen = port;
    for (let tries = 0; chosen === 0 || (port === 0 && !isFree(chosen)); tries++) {
      if (tries > 10 * (EPHEMERAL.to - EPHEMERAL.from))
        throw new VerbsError('EADDRINUSE', `all ports of ${space} are taken`);
      chosen = EPHEMERAL.from + (this.device.card.exports.randomPsn() % (EPHEMERAL.to - EPHEMERAL.from));
    }
    this.#boundPorts.set(key(chosen), (this.#boundPorts.get(key(chosen)) ?? 0) + 1);
    return chosen;
  }

  releasePort(space: PortSpaceName, port: number): void {
    const key = `${space}/${port}`;
    const left = (this.#boundPorts.get(key) ?? 1) - 1;
    if (left > 0) this.#boundPorts.set(key, left);
    else this.#boundPorts.delete(key);
  }

  /** Messages by name, and why others were dropped. */
  counters(): Readonly<Record<string, number>> {
    const dropped = Object.entries(this.#dropped).filter(([, count]) => count > 0);
    return { ...this.core.counters(), ...Object.fromEntries(dropped) };
  }

  /** Says good-bye to all peers, if it still can. */
  protected free(): void {
    clearTimeout(this.#timer);
    if (this.isAlive) this.#sayGoodbye();
    this.#ids.clear();
    this.#listeners.clear();
    this.#neighbours.close();
  }

  #sayGoodbye(): void {
    this.core.closeAll(this.now());
    this.#outbox.push(...this.core.takeMessages());
    const { engine } = this.device;
    const until = this.now() + LAST_WORDS;
    // the device may fail meanwhile
    const isDone = () => !this.isAlive || (this.#outbox.length === 0 && this.qp.query().progress.sendPending === 0);
    do {
      this.#room = BURST - 1;
      this.#post();
      engine.schedule();
      engine.poll();
    } while (!isDone() && this.now() < until);
  }

  #postReceive(slot: number): void {
    this.qp.postRecv({ wrId: slot, sgList: this.mr.slice(slot * SLOT_BYTES, SLOT_BYTES) });
  }

  #receive(): void {
    if (!this.isAlive) return;
    // first: what comes behind the last look rings
    this.#cq.arm();
    for (let count = pollAlive(this.#cq, this.#wcs); count > 0; count = pollAlive(this.#cq, this.#wcs))
      for (const wc of this.#wcs.slice(0, count)) this.#receiveOne(wc);
    this.#flush();
  }

  #receiveOne({ ok, hasGrh, wrId, byteLen }: Wc): void {
    if (!ok) return;
    const slot = this.mr.buffer.subarray(wrId * SLOT_BYTES, wrId * SLOT_BYTES + byteLen);
    if (hasGrh) {
      const { source, destination } = readGrh(slot);
      this.core.receive(slot.subarray(GRH_BYTES), { local: destination, remote: source }, this.now());
    } else {
      this.#dropped.cm_drop_no_grh++;
    }
    this.#postReceive(wrId);
  }

  /** Sends, tells and arms the timer. What those who are told do to the core comes in the next round. */
  #flush(): void {
    if (this.#isFlushing || !this.isAlive) return;
    this.#isFlushing = true;
    try {
      for (let isBusy = true; isBusy; ) {
        const messages = this.core.takeMessages();
        const events = this.core.takeEvents();
        for (const message of messages) this.#send(message);
        for (const event of events) this.#tell(event);
        isBusy = messages.length + events.length > 0;
      }
    } finally {
      this.#isFlushing = false;
    }
    this.#arm();
  }

  #tell(event: CoreEvent): void {
    if (event.type === 'CONNECT_REQUEST') this.#listeners.get(event.listener)?.tell(event);
    else this.#ids.get(event.id)?.(event);
  }

  #arm(): void {
    const at = this.core.nextDeadline();
    if (at === this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    if (at === Number.POSITIVE_INFINITY) return;
    const wait = Math.min(Math.max(0, Math.ceil(at - this.now())), LONGEST_TIMER);
    // who waits for an event keeps the process running; a message that is sent again does not
    this.#timer = setTimeout(() => this.#onTimer(), wait).unref();
  }

  #onTimer(): void {
    if (!this.isAlive) return;
    this.#timerAt = Number.POSITIVE_INFINITY;
    this.core.expire(this.now());
    this.#ways.closeOld();
    this.#flush();
  }

  #send(message: Outgoing): void {
    const onFound = () => {
      this.#outbox.push(message);
      this.#post();
    };
    const onLost = () => {
      this.#dropped.cm_drop_unreachable++;
    };
    this.#ways.find(message, this.now(), onFound, onLost);
  }

  /** Posts what may leave now. @returns whether something is left */
  #post(): boolean {
    for (let next = this.#outbox[0]; next !== undefined; next = this.#outbox[0]) {
      if (this.#room === 0 || !this.#tryPost(next)) return true;
      this.#outbox.shift();
    }
    return false;
  }

  /** @returns whether it is done with */
  #tryPost(message: Outgoing): boolean {
    // it may have been looked up anew since
    const ah = this.#ways.last(message);
    if (ah === undefined || !this.qp.isAlive) return true;
    try {
      this.qp.postSend({ opcode: 'SEND', sgList: message.bytes, ah, remoteQpn: GSI.qpn, remoteQkey: GSI.qkey });
    } catch (error) {
      if (!(error instanceof VerbsError && error.code === 'ENOMEM')) throw error;
      this.#take(this.#room);
      return false;
    }
    this.#take(1);
    return true;
  }

  #take(room: number): void {
    if (this.#room === BURST) setImmediate(() => this.#nextRound());
    this.#room -= room;
  }

  #nextRound(): void {
    this.#room = BURST;
    if (this.isAlive) this.#post();
  }
}
