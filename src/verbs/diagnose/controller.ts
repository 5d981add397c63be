/** Control of the devices of other programs, which use the broker of this network namespace. */
import { once } from 'node:events';
import { Socket } from 'node:net';
import { Deferred } from '../../base/deferred.js';
import { isMessage, type Message, parseMessage } from '../../base/message.js';
import { VerbsError } from '../../errors.js';
import { converse } from '../../link/broker/client.js';
import type { BrokerConnection } from '../../link/broker/connection.js';
import { BROKER_NAME, errorIn } from '../../link/broker/protocol.js';
import { errnoName } from '../../link/errno.js';
import { closeFds } from '../../link/fds.js';
import { native } from '../../native.js';
import type { ControlResults, FaultState } from './control.js';
import type { FaultRuleOptions } from './faults.js';
import { MAX_REPLY, onLines } from './lines.js';
import { type DeviceStat, isDeviceStat } from './stat.js';

/** Options of `RemoteDevice.addFault`. */
export interface RemoteFaultOptions extends FaultRuleOptions {
  /** Whether the rule stays when the control of the device ends. Default false. */
  readonly keep?: boolean;
}

/** Time that a program may take to reply (ms); its event loop may be busy. */
const REPLY_MS = 2000;

/** A device of another program, from {@link remoteDevices}. */
export class RemoteDevice {
  readonly #socket: Socket;
  readonly #pending = new Map<number, Deferred<unknown>>();
  #lastId = 0;

  /** @internal @param fd a stream to the program, which the object owns */
  constructor(
    /** Process id of the program. */
    readonly pid: number,
    /** User id of the program. */
    readonly uid: number,
    /** Bits 16 to 23 of the numbers of the device's queue pairs. */
    readonly slot: number,
    fd: number,
  ) {
    native().releaseFd(fd);
    this.#socket = new Socket({ fd, readable: true, writable: true });
    this.#socket.unref();
    this.#socket.on('error', () => this.#socket.destroy());
    this.#socket.on('close', () => this.#end());
    onLines(this.#socket, MAX_REPLY, (line) => this.#onReply(parseMessage(line) ?? {}));
  }

  /** Waits until the device is closed, or its program has ended. Keeps the process running until then. */
  async closed(): Promise<void> {
    this.#socket.ref();
    if (!this.#socket.closed) await once(this.#socket, 'close');
  }

  /** Returns state, addresses and counters of the device, and the command of its program. @throws VerbsError */
  async stat(): Promise<DeviceStat> {
    return this.#checked(await this.#request('stat'), isDeviceStat, 'the state of a device');
  }

  /** Returns the rules of faults that are in force. @throws VerbsError */
  async faults(): Promise<readonly FaultState[]> {
    return this.#checked(await this.#request('faults'), areFaults, 'rules of faults');
  }

  /**
   * Adds a rule of faults, as `device.addFault` does. It ends with the control of the device, unless `keep` is true.
   * @throws VerbsError with the reason
   */
  async addFault(rule: string, { seed = 1, keep = false }: RemoteFaultOptions = {}): Promise<FaultState> {
    return this.#checked(await this.#request('add', { rule, seed, keep }), isFault, 'a rule of faults');
  }

  /** Removes a rule of faults. @throws VerbsError ENOENT if there is none with the number */
  async removeFault(id: number): Promise<FaultState> {
    return this.#checked(await this.#request('remove', { fault: id }), isFault, 'a rule of faults');
  }

  /** Ends the control of the device, and with it the rules that are not kept. A second call does nothing. */
  close(): void {
    this.#socket.destroy();
  }

  async #request(type: keyof ControlResults, more: Message = {}): Promise<unknown> {
    const id = ++this.#lastId;
    const reply = new Deferred<unknown>(() => this.#pending.delete(id));
    if (this.#socket.destroyed) throw this.#hasEnded();
    this.#pending.set(id, reply);
    this.#socket.write(`${JSON.stringify({ id, type, ...more })}\n`);
    if (!(await reply.isSettledWithin(REPLY_MS)))
      reply.reject(new VerbsError('ETIMEDOUT', `process ${this.pid} does not reply within ${REPLY_MS} ms`));
    return reply.promise;
  }

  /** Returns a reply of the program, which may be another user's. @throws VerbsError EIO if it is not as expected */
  #checked<T>(reply: unknown, isExpected: (value: unknown) => value is T, expected: string): T {
    if (isExpected(reply)) return reply;
    throw new VerbsError('EIO', `process ${this.pid} does not reply with ${expected}`);
  }

  #onReply(reply: Message): void {
    const pending = this.#pending.get(reply.id as number);
    const error = errorIn(reply);
    if (error === undefined) pending?.resolve(reply.result);
    else pending?.reject(error);
  }

  #end(): void {
    for (const pending of [...this.#pending.values()]) pending.reject(this.#hasEnded());
  }

  #hasEnded(): VerbsError {
    return new VerbsError('ECANCELED', `process ${this.pid} has ended, or has closed its device`);
  }
}

const isFault = (value: unknown): value is FaultState =>
  isMessage(value) &&
  typeof value.rule === 'string' &&
  [value.id, value.seed, value.hits].every((each) => typeof each === 'number');

const areFaults = (value: unknown): value is readonly FaultState[] => Array.isArray(value) && value.every(isFault);

interface ListedProgram {
  readonly number: number;
  readonly slot: number;
  readonly pid: number;
  readonly uid: number;
}

const areListed = (value: unknown): value is readonly ListedProgram[] =>
  Array.isArray(value) &&
  value.every(
    (each) => isMessage(each) && ['number', 'slot', 'pid', 'uid'].every((name) => typeof each[name] === 'number'),
  );

/**
 * Returns the devices of all programs that use the broker of this network namespace: those that share their addresses.
 * Empty if there is no broker.
 * @throws VerbsError EPERM if the broker belongs to another user, and this process is not root; EOPNOTSUPP if it has
 * another version; ETIMEDOUT, EIO
 */
export async function remoteDevices(): Promise<RemoteDevice[]> {
  const fd = native().unix.connect(BROKER_NAME);
  const failed = fd < 0 ? errnoName(fd) : undefined;
  if (failed === 'ECONNREFUSED') return [];
  if (failed !== undefined) throw new VerbsError('EOPNOTSUPP', `Unix sockets do not work here (${failed})`);
  const greeting = await converse(fd, { type: 'programs' });
  if (greeting === undefined) return [];
  const { connection, message } = greeting;
  const devices: RemoteDevice[] = [];
  try {
    const { programs } = message;
    if (!areListed(programs))
      throw new VerbsError('EIO', `the broker (pid ${connection.peer.pid}) does not reply with its programs`);
    for (const { number, pid, uid, slot } of programs) {
      const stream = await streamTo(connection, number);
      // one that has ended meanwhile
      if (stream === undefined) continue;
      devices.push(new RemoteDevice(pid, uid, slot, stream));
    }
    return devices;
  } catch (error) {
    for (const device of devices) device.close();
    throw error;
  } finally {
    connection.close();
  }
}

/** @returns undefined if the program is not connected with the broker @throws VerbsError ETIMEDOUT */
async function streamTo(connection: BrokerConnection, number: number): Promise<number | undefined> {
  const reply = new Deferred<number | undefined>();
  connection.events = {
    onMessage: (message, [fd, ...others]) => {
      closeFds(others);
      reply.resolve(errorIn(message) === undefined ? fd : undefined);
    },
    onEnd: () => reply.resolve(undefined),
  };
  connection.keepsAlive = true;
  if (!connection.send({ id: number, type: 'control', number })) reply.resolve(undefined);
  if (await reply.isSettledWithin(REPLY_MS)) return reply.promise;
  throw new VerbsError('ETIMEDOUT', `the broker (pid ${connection.peer.pid}) does not reply within ${REPLY_MS} ms`);
}
