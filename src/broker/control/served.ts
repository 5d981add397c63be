/**
 * The control of a program of the library (native/verbs), which serves no controllers itself: the broker does. The
 * program's frames pass by the rules of faults here; events of the host, and its state, are messages.
 */
import { createReadStream } from 'node:fs';
import type { Socket } from 'node:net';
import { text as textOfStream } from 'node:stream/consumers';
import { Deferred } from '../../base/deferred.js';
import { type Message, parseMessage } from '../../base/message.js';
import { outOfRange, VerbsError } from '../../errors.js';
import { native } from '../../native.js';
import type { HostFault } from '../../probe/faults/hostfault.js';
import { gidTable } from '../../verbs/address/gid.js';
import { type ControlledDevice, serveControl } from '../../verbs/diagnose/control.js';
import { checkFaultRules, type DeviceFault, type FaultRuleOptions, Faults } from '../../verbs/diagnose/faults.js';
import { faultyGids, isPortDown } from '../../verbs/diagnose/hostfaults.js';
import { MAX_REPLY } from '../../verbs/diagnose/lines.js';
import { type DeviceStat, isDeviceStat } from '../../verbs/diagnose/stat.js';
import { FrameFilter } from './framefilter.js';

/** Sends the program a message with file descriptors. @returns false if it is not connected with the broker */
export type SendToProgram = (message: Message, fds?: readonly number[]) => boolean;

/** Time that the program may take for its state (ms). */
const STAT_MS = 1500;

/** See the head of this file. */
export class ServedProgram implements ControlledDevice {
  readonly #send: SendToProgram;
  readonly #addresses: readonly string[];
  readonly #filter: FrameFilter;
  readonly #faults: Faults;
  /** The rules that the program has brought. */
  #brought: readonly DeviceFault[] = [];
  /** The streams of controllers. */
  readonly #controls = new Set<Socket>();
  /** Requests for the program's state. */
  readonly #stats = new Set<Deferred<DeviceStat>>();

  /** @param addresses of the program's GID table, in its order @throws VerbsError EIO without file descriptors */
  constructor(addresses: readonly string[], send: SendToProgram) {
    this.#addresses = addresses;
    this.#send = send;
    this.#filter = new FrameFilter((fd) => send({ type: 'gate' }, [fd]));
    this.#faults = new Faults(this.#filter);
    this.#faults.onHostFaults = (faults) => this.#onHostFaults(faults);
  }

  get faults(): readonly DeviceFault[] {
    return this.#faults.all;
  }

  addFault(rule: string, options?: FaultRuleOptions): Promise<DeviceFault> {
    return this.#faults.add(rule, options);
  }

  /** Replaces the rules that the program has brought. @throws TypeError, RangeError; ScriptError; VerbsError */
  async addRules({ rules, seed }: Message): Promise<void> {
    if (!Array.isArray(rules) || !rules.every((each) => typeof each === 'string')) throw new TypeError('no rules');
    if (!Number.isSafeInteger(seed)) throw outOfRange(`seed ${String(seed)} is not an integer below 2^53`);
    const checked = await checkFaultRules(rules, seed as number);
    await Promise.all(this.#brought.map((each) => each.remove()));
    this.#brought = await this.#faults.addAll(checked);
  }

  /** The rules that the program has brought, and that have hit no packet; events of the host hit none. */
  get idleRules(): readonly string[] {
    const idle = this.#brought.filter(({ hits, hostFault }) => hits === 0 && hostFault === undefined);
    return idle.map(({ rule }) => rule);
  }

  /** Serves a controller at the other end of a stream, which the function owns. */
  serve(fd: number): void {
    const control = serveControl(this, fd);
    this.#controls.add(control);
    control.on('close', () => this.#controls.delete(control));
  }

  /** @throws VerbsError ECANCELED, ETIMEDOUT; EIO if the program does not say its state */
  async stat(): Promise<DeviceStat> {
    const stat = new Deferred<DeviceStat>(() => this.#stats.delete(stat));
    this.#stats.add(stat);
    if (!this.#send({ type: 'stat' }))
      stat.reject(new VerbsError('ECANCELED', 'the program is not connected with the broker'));
    if (!(await stat.isSettledWithin(STAT_MS)))
      stat.reject(new VerbsError('ETIMEDOUT', `the program does not say its state within ${STAT_MS} ms`));
    return stat.promise;
  }

  /** The program has sent its state: a file, which the function owns. */
  async onStat(fd: number | undefined): Promise<void> {
    const stats = [...this.#stats];
    const stat = fd === undefined ? undefined : parseMessage(await contentOf(fd));
    for (const each of stats)
      if (isDeviceStat(stat)) each.resolve(stat);
      else each.reject(new VerbsError('EIO', 'the program does not say its state'));
  }

  /** The program has ended, and with it the control of it. A second call does nothing. */
  close(): void {
    for (const control of this.#controls) control.destroy();
    this.#filter.close();
  }

  #onHostFaults(faults: readonly HostFault[]): void {
    const gids = faultyGids(gidTable(this.#addresses), faults).map(({ address }) => address);
    const hasFailed = faults.some(({ kind }) => kind === 'device failure');
    this.#send({ type: 'host', isDown: isPortDown(faults), hasFailed, gids });
  }
}

/** Returns the content of a file in memory, and closes it. Empty if it is too long, or cannot be read. */
async function contentOf(fd: number): Promise<string> {
  native().releaseFd(fd);
  try {
    // the writer has left the file's position at its end
    return await textOfStream(createReadStream('', { fd, start: 0, end: MAX_REPLY }));
  } catch {
    return '';
  }
}
