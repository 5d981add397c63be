/**
 * The broker of a network namespace: the programs of one address share its UDP port 4791. The broker opens the sockets,
 * lends one for each address to each device, and tells the kernel which socket receives a packet (steering.ts). No
 * packet passes through the broker, but those of a program of the library that rules of faults disturb (control/). When
 * it ends, the sockets stay with the programs (vault.ts), which start another.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { ipBytes } from '../base/address.js';
import type { Message } from '../base/message.js';
import { clearInterval, clearTimeout, performance, setInterval, setTimeout, sleep } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import { BrokerConnection, type PeerProcess } from '../link/broker/connection.js';
import {
  addressesIn,
  addressIn,
  addressKey,
  BROKER_NAME,
  errorMessage,
  type HostAddress,
  PROTOCOL_VERSION,
  serviceIn,
} from '../link/broker/protocol.js';
import { errnoError, errnoName } from '../link/errno.js';
import { closeFds } from '../link/fds.js';
import { ROCE_PORT } from '../link/headers.js';
import { openPoller } from '../link/poller.js';
import { type NativePoller, native } from '../native.js';
import type { ServedProgram } from './control/served.js';
import { type Member, PortGroup } from './portgroup.js';
import { Program } from './program.js';
import type { RdmaCm } from './rdmacm/service.js';
import { MAX_SERVICES } from './steering.js';
import { type Entry, Vault } from './vault.js';

/** Options of `Broker.open`. */
export interface BrokerOptions {
  /** A socket that listens on the broker's name and does not block; it stays the caller's. Default: its own. */
  readonly listener?: number;
  /** The broker ends when it has had no program for so long (ms). Default: never. */
  readonly idleMs?: number;
  /** Says whether a process may use the sockets. Default: those of the broker's user, and of root. */
  readonly admits?: (peer: PeerProcess) => boolean;
  /** Called with a line of text for each program that joins, leaves or is refused. */
  readonly log?: (line: string) => void;
}

/** Slots of the devices of an address: 1 to 255. Queue pair numbers of devices without a broker begin with 0. */
const SLOTS = 255;
/** Connections that have not joined: others are not accepted until one of them has. */
const MAX_STRANGERS = 64;
/** Time that a connection has to join (ms). */
const JOIN_MS = 5000;
/** Time that the programs of an earlier broker have to find this one (ms). */
const TAKEOVER_MS = 3000;
const RETRY_MS = 20;
/** Time without accepting when there are no file descriptors (ms). */
const PAUSE_MS = 100;
/** A program may have detached the steering of its group: it is set again every so often (ms). */
const RESTEER_MS = 1000;

/** The vault's description of a socket. */
type Kept =
  | { readonly kind: 'lease'; readonly slot: number; readonly secret: string; readonly onlyLocal: boolean }
  | { readonly kind: 'member'; readonly at: HostAddress; readonly index: number; readonly secret?: string };

/** A reply without its id. */
interface Reply extends Message {
  readonly fds?: readonly number[];
}

/** A program, as the vault keeps it. */
type KeptProgram = Pick<Program, 'slot' | 'secret' | 'onlyLocal' | 'lease'>;

const own = process.getuid?.() ?? 0;

/** The programs that a broker admits by default. */
export const isOwnerOrRoot = ({ uid }: PeerProcess): boolean => uid === own || uid === 0;

/** See the head of this file. */
export class Broker {
  /** Resolved when the broker has ended. */
  readonly closed: Promise<void>;
  readonly #listener: number;
  readonly #poller: NativePoller;
  readonly #admits: (peer: PeerProcess) => boolean;
  readonly #log: (line: string) => void;
  readonly #idleMs: number | undefined;
  readonly #startedAt = performance.now();
  readonly #strangers = new Set<BrokerConnection>();
  readonly #controllers = new Set<BrokerConnection>();
  /** By secret. */
  readonly #programs = new Map<string, Program>();
  readonly #groups = new Map<string, PortGroup>();
  /** Loaded when a program opens rdma_cm: it moves packets, which the broker does not. */
  #rdmaCm: Promise<RdmaCm> | undefined;
  /** The programs whose controllers the broker serves. They are made for the first controller, or rule of faults. */
  readonly #served = new Map<Program, Promise<ServedProgram>>();
  #vault: Vault<Kept>;
  /** Random at first: programs of the earlier broker may have the lowest slots. */
  #lastSlot = randomInt(SLOTS);
  #lastNumber = 0;
  #isClosed = false;
  #onClosed = () => {};
  #idle: NodeJS.Timeout | undefined;
  #pause: NodeJS.Timeout | undefined;
  #resteer: NodeJS.Timeout | undefined;

  /** @throws VerbsError EADDRINUSE if the namespace has a broker; EIO */
  static open(options: BrokerOptions = {}): Broker {
    const { listener } = options;
    const vault = Vault.open<Kept>();
    const fd = listener === undefined ? native().unix.listen(BROKER_NAME) : native().dupFd(listener);
    if (fd >= 0) return new Broker(fd, vault, options);
    vault.close();
    throw errnoError(fd, 'the broker cannot listen', { EADDRINUSE: `this network namespace has ${other()}` });
  }

  private constructor(
    listener: number,
    vault: Vault<Kept>,
    { idleMs, admits = isOwnerOrRoot, log = () => {} }: BrokerOptions,
  ) {
    this.#listener = listener;
    this.#vault = vault;
    this.#admits = admits;
    this.#log = log;
    this.#idleMs = idleMs;
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
    this.#poller = openPoller([listener], () => this.#accept());
    this.#poller.start(-1, true);
    this.#setIdle();
  }

  /** Ends the broker. The programs keep their sockets. A second call does nothing. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#idle);
    clearTimeout(this.#pause);
    clearInterval(this.#resteer);
    // first, so that the programs find no broker when their connection ends
    this.#poller.close();
    native().closeFd(this.#listener);
    for (const connection of [...this.#strangers, ...this.#controllers]) connection.close();
    void this.#rdmaCm?.then((rdmaCm) => rdmaCm.close());
    for (const each of this.#served.values()) void each.then((served) => served.close());
    for (const program of this.#programs.values()) program.close();
    for (const group of this.#groups.values()) group.close();
    this.#vault.close();
    this.#onClosed();
  }

  #setIdle(): void {
    clearTimeout(this.#idle);
    if (this.#idleMs === undefined || this.#programs.size + this.#strangers.size > 0 || this.#isClosed) return;
    this.#idle = setTimeout(() => this.close(), this.#idleMs);
  }

  #accept(): void {
    let fd = 0;
    while (this.#strangers.size < MAX_STRANGERS) {
      fd = native().unix.accept(this.#listener);
      if (fd < 0) break;
      this.#welcome(fd);
    }
    if (this.#isClosed) return;
    if (fd < 0 && errnoName(fd) !== 'EAGAIN') {
      // without file descriptors, the socket stays readable
      this.#log(`a program cannot join (${errnoName(fd)}): raise the limit of open files`);
      clearTimeout(this.#pause);
      this.#pause = setTimeout(() => this.#accept(), PAUSE_MS);
    } else if (this.#strangers.size < MAX_STRANGERS) {
      this.#poller.start(-1, true);
    }
  }

  #welcome(fd: number): void {
    try {
      this.#greet(fd);
    } catch (error) {
      this.#log(`a program cannot join: ${(error as Error).message}`);
      native().unix.send(fd, Buffer.from(JSON.stringify({ id: 0, ...errorMessage(error) })), []);
      native().closeFd(fd);
    }
  }

  /** @throws VerbsError EIO without file descriptors */
  #greet(fd: number): void {
    let program: Promise<Program | undefined> | undefined;
    const leave = () => {
      clearTimeout(timer);
      if (!this.#strangers.delete(connection)) return;
      this.#poller.start(-1, true);
      this.#setIdle();
    };
    const connection: BrokerConnection = new BrokerConnection(fd, {
      onMessage: (message, fds) => {
        if (this.#controllers.has(connection)) {
          closeFds(fds);
          this.#serveController(connection, message);
        } else if (program === undefined && message.type === 'programs') {
          closeFds(fds);
          this.#admitController(connection, message);
          leave();
        } else if (program === undefined) {
          program = this.#join(connection, message, fds);
          void program.then((joined) => {
            leave();
            if (joined === undefined) connection.close();
          });
        } else {
          void program.then((joined) => {
            if (joined === undefined) closeFds(fds);
            else this.#serve(joined, connection, message, fds);
          });
        }
      },
      onEnd: () => {
        this.#controllers.delete(connection);
        leave();
        void program?.then((joined) => {
          if (joined?.connection === connection) joined.connection = undefined;
        });
      },
    });
    this.#strangers.add(connection);
    clearTimeout(this.#idle);
    const timer = setTimeout(() => {
      connection.close();
      leave();
    }, JOIN_MS);
  }

  /** Handles the first message of a connection. @returns the program; undefined if it is refused */
  async #join(connection: BrokerConnection, message: Message, fds: readonly number[]): Promise<Program | undefined> {
    try {
      const program = await this.#programFor(connection, message, fds);
      program.connection = connection;
      return program;
    } catch (error) {
      const { uid, pid } = connection.peer;
      this.#log(`process ${pid} of user ${uid} is refused: ${(error as Error).message}`);
      connection.send({ id: message.id, ...errorMessage(error) });
      return undefined;
    } finally {
      closeFds(fds);
    }
  }

  async #programFor(connection: BrokerConnection, message: Message, fds: readonly number[]): Promise<Program> {
    const { type, version, id } = message;
    const { uid } = connection.peer;
    checkVersion(version);
    if (!this.#admits(connection.peer))
      throw new VerbsError(
        'EPERM',
        `the broker (pid ${process.pid}) of user ${own} does not admit user ${uid}: its owner can start it with ` +
          `\`wasm-roce broker --allow ${uid}\``,
      );
    if (type === 'rejoin') {
      const program = this.#rejoin(message, fds);
      program.gidAddresses = gidAddressesIn(message);
      connection.send({ id, slot: program.slot, secret: program.secret }, [this.#vault.fd]);
      return program;
    }
    if (type !== 'join') throw new TypeError(`the first message is ${String(type)}, not join`);
    const addresses = addressesIn(message);
    await this.#takeover(addresses);
    if (connection.isClosed) throw new VerbsError('ECANCELED', 'the program has ended');
    const slot = this.#freeSlot(addresses);
    const pair = native().unix.pair();
    if (typeof pair === 'number') throw errnoError(pair, 'the broker has no lease', {});
    const [lease, theirs] = pair;
    const secret = randomBytes(16).toString('hex');
    try {
      const program = this.#addProgram({ slot, secret, onlyLocal: message.onlyLocal === true, lease });
      for (const at of addresses) program.addresses.add(addressKey(at));
      program.gidAddresses = gidAddressesIn(message);
      connection.send({ id, slot, secret }, [theirs, this.#vault.fd]);
      this.#keep();
      this.#log(`slot ${slot}: process ${connection.peer.pid} of user ${uid}`);
      return program;
    } finally {
      native().closeFd(theirs);
    }
  }

  /** @throws VerbsError EIO without file descriptors; the lease is closed then */
  #addProgram({ slot, secret, onlyLocal, lease }: KeptProgram): Program {
    const program = new Program(++this.#lastNumber, slot, secret, onlyLocal, lease, () => this.#end(program));
    this.#programs.set(secret, program);
    clearTimeout(this.#idle);
    this.#resteer ??= setInterval(() => {
      for (const group of this.#groups.values()) group.steerAgain();
    }, RESTEER_MS);
    return program;
  }

  /** A slot of the earlier broker. */
  #rejoin(message: Message, fds: readonly number[]): Program {
    const { slot, secret, isAgent, services } = message;
    const [vault] = fds;
    if (!this.#programs.has(secret as string) && vault !== undefined) this.#restore(vault);
    const program = this.#programs.get(secret as string);
    if (program === undefined || program.slot !== slot)
      throw new VerbsError('ENOENT', `the broker (pid ${process.pid}) does not know slot ${slot} of an earlier broker`);
    program.connection?.close();
    program.isAgent = isAgent === true;
    for (const each of Array.isArray(services) ? services : []) {
      const service = serviceIn(each as Message);
      const group = this.#groups.get(addressKey(service));
      if (group?.has(program) && !group.services.has(service.id)) group.services.set(service.id, program);
    }
    for (const [, group] of this.#groupsOf(program)) group.steer();
    return program;
  }

  /** Without file descriptors for its lease, a program of the earlier broker loses its slot. */
  #restoreProgram(program: KeptProgram): void {
    try {
      this.#addProgram(program);
    } catch (error) {
      this.#log(`the program in slot ${program.slot} is lost: ${(error as Error).message}`);
    }
  }

  /** Takes the sockets of an earlier broker from its vault. */
  #restore(fd: number): void {
    const duplicate = native().dupFd(fd);
    if (duplicate < 0) return;
    const vault = new Vault<Kept>(duplicate);
    const entries = vault.read();
    const members = new Map<string, { at: HostAddress; members: Member[] }>();
    for (const { fd: kept, is } of entries) {
      if (is.kind === 'lease' && !this.#programs.has(is.secret)) {
        this.#restoreProgram({ ...is, lease: kept });
      } else if (is.kind === 'member' && !this.#groups.has(addressKey(is.at))) {
        const key = addressKey(is.at);
        const found = members.get(key) ?? { at: is.at, members: [] };
        members.set(key, found);
        const program = this.#programs.get(is.secret ?? '');
        program?.addresses.add(key);
        found.members[is.index] = { fd: kept, program };
      } else {
        native().closeFd(kept);
      }
    }
    for (const [key, group] of members) this.#groups.set(key, new PortGroup(group.at, group.members));
    if (entries.length === 0) {
      vault.close();
      return;
    }
    this.#vault.close();
    this.#vault = vault;
    this.#log(`${entries.length} sockets of the earlier broker`);
    this.#keep();
  }

  /**
   * Returns a slot that no program has, or else none with one of the addresses: of the programs of an address each has
   * another one. It is not one that has just become free if there is another.
   */
  #freeSlot(addresses: readonly HostAddress[]): number {
    const programs = [...this.#programs.values()];
    const keys = addresses.map(addressKey);
    const onAddresses = programs.filter((each) => keys.length === 0 || keys.some((key) => each.addresses.has(key)));
    for (const others of [programs, onAddresses]) {
      const taken = new Set(others.map(({ slot }) => slot));
      for (let i = 1; i <= SLOTS; i++) {
        const slot = ((this.#lastSlot + i - 1) % SLOTS) + 1;
        if (taken.has(slot)) continue;
        this.#lastSlot = slot;
        return slot;
      }
    }
    throw new VerbsError(
      'ENOSPC',
      `${SLOTS} devices share the addresses ${addresses.map(({ address }) => address)} through the broker, as many as ` +
        'it can serve: close one of them',
    );
  }

  /** The program has ended, or has closed its device. */
  #end(program: Program): void {
    const { slot } = program;
    program.close();
    void this.#rdmaCm?.then((rdmaCm) => rdmaCm.end(program));
    void this.#served.get(program)?.then((served) => served.close());
    this.#served.delete(program);
    this.#programs.delete(program.secret);
    for (const [key, group] of this.#groupsOf(program)) this.#release(key, group, program);
    if (this.#programs.size === 0) {
      clearInterval(this.#resteer);
      this.#resteer = undefined;
    }
    this.#keep();
    this.#setIdle();
    this.#log(`slot ${slot} is free`);
  }

  /** Returns the groups in which a program has a socket, with their keys. */
  #groupsOf(program: Program): [string, PortGroup][] {
    return [...this.#groups].filter(([, group]) => group.has(program));
  }

  #release(key: string, group: PortGroup, program: Program): void {
    group.release(program);
    if (!group.isUnused) return;
    group.close();
    this.#groups.delete(key);
  }

  /** Writes the sockets as they are now into the vault. */
  #keep(): void {
    const entries: Entry<Kept>[] = [];
    for (const { slot, secret, onlyLocal, lease } of this.#programs.values())
      entries.push({ fd: lease, is: { kind: 'lease', slot, secret, onlyLocal } });
    for (const { at, members } of this.#groups.values())
      for (const [index, { fd, program }] of members.entries())
        entries.push({ fd, is: { kind: 'member', at, index, ...(program && { secret: program.secret }) } });
    const failed = this.#vault.write(entries);
    if (failed < 0)
      this.#log(`the sockets are not kept for the next broker (${errnoName(failed)}): raise the limit of open files`);
  }

  /** Handles the first message of a controller. */
  #admitController(connection: BrokerConnection, { id, version }: Message): void {
    const { uid, pid } = connection.peer;
    try {
      checkVersion(version);
      if (!isOwnerOrRoot(connection.peer))
        throw new VerbsError(
          'EPERM',
          `the broker (pid ${process.pid}) belongs to user ${own}: user ${uid} may not control its programs`,
        );
    } catch (error) {
      connection.send({ id, ...errorMessage(error) });
      connection.close();
      this.#log(`process ${pid} of user ${uid} may not control the programs`);
      return;
    }
    this.#controllers.add(connection);
    const programs = [...this.#programs.values()].flatMap(({ number, slot, connection: theirs }) =>
      theirs ? [{ number, slot, pid: theirs.peer.pid, uid: theirs.peer.uid }] : [],
    );
    connection.send({ id, programs });
  }

  /** Connects a controller with a program. */
  #serveController(connection: BrokerConnection, { id, type, number }: Message): void {
    const program = [...this.#programs.values()].find((each) => each.number === number);
    const pair = type === 'control' ? native().unix.pair() : -1;
    const [ours, theirs] = typeof pair === 'number' ? [] : pair;
    const isConnected = theirs !== undefined && program !== undefined && this.#control(program, theirs);
    const message = `the program ${String(number)} is not connected with the broker`;
    const isSent =
      isConnected && ours !== undefined
        ? connection.send({ id }, [ours])
        : connection.send({ id, error: 'ENOENT', message });
    // a controller that does not read is ended
    if (!isSent) connection.close();
    if (typeof pair !== 'number') closeFds(pair);
  }

  /** Gives a program a controller's stream, which stays the caller's. @returns false if it is not connected */
  #control(program: Program, stream: number): boolean {
    if (program.gidAddresses === undefined) return program.connection?.send({ type: 'control' }, [stream]) === true;
    const duplicate = program.connection === undefined ? -1 : native().dupFd(stream);
    if (duplicate < 0) return false;
    this.#servedOf(program).then(
      (served) => served.serve(duplicate),
      () => native().closeFd(duplicate),
    );
    return true;
  }

  /** Rejects with TypeError for a program that serves its controllers itself. */
  #servedOf(program: Program): Promise<ServedProgram> {
    const known = this.#served.get(program);
    if (known !== undefined) return known;
    const { gidAddresses } = program;
    if (gidAddresses === undefined) return Promise.reject(new TypeError('the program serves its controllers itself'));
    const send = (message: Message, fds?: readonly number[]) => program.connection?.send(message, fds) === true;
    const served = import('./control/served.js').then((module) => new module.ServedProgram(gidAddresses, send));
    this.#served.set(program, served);
    served.catch(() => this.#served.delete(program));
    return served;
  }

  /** @param fds the function owns them */
  #serve(program: Program, connection: BrokerConnection, message: Message, fds: readonly number[]): void {
    const { id } = message;
    if (message.type === 'stat') {
      const [file, ...others] = fds;
      closeFds(others);
      this.#servedOf(program).then(
        (served) => served.onStat(file),
        () => closeFds(file === undefined ? [] : [file]),
      );
      return;
    }
    closeFds(fds);
    const reply = ({ fds = [], ...more }: Reply) => {
      // a program that does not read is ended
      if (!connection.send({ id, ...more }, fds)) connection.close();
    };
    if (message.type === 'rdmaCm') {
      this.#openRdmaCm(program, message).then(
        (opened) => {
          reply(opened);
          closeFds(opened.fds);
        },
        (error) => reply(errorMessage(error)),
      );
      return;
    }
    this.#execute(program, message).then(
      (result) => reply(result),
      (error) => reply(errorMessage(error)),
    );
  }

  /** Opens a file of rdma_cm. @returns the reply; the caller closes its file descriptors */
  async #openRdmaCm(program: Program, message: Message): Promise<Reply & { readonly fds: readonly number[] }> {
    this.#rdmaCm ??= import('./rdmacm/service.js').then((module) => new module.RdmaCm());
    const { number, fds } = await (await this.#rdmaCm).open(program, message);
    return { file: number, fds };
  }

  /** Executes a request. @returns the reply */
  async #execute(program: Program, message: Message): Promise<Reply> {
    switch (message.type) {
      case 'socket':
        return { fds: [await this.#lend(program, addressIn(message))] };
      case 'release': {
        const key = addressKey(addressIn(message));
        const group = this.#groups.get(key);
        program.addresses.delete(key);
        if (!group?.has(program)) return {};
        this.#release(key, group, program);
        this.#keep();
        return {};
      }
      case 'faults':
        await (await this.#servedOf(program)).addRules(message);
        return {};
      case 'idleFaults':
        return { idle: (await this.#servedOf(program)).idleRules };
      case 'agent':
        program.isAgent = true;
        for (const [, group] of this.#groupsOf(program)) group.steer();
        return {};
      case 'listen':
      case 'unlisten': {
        const service = serviceIn(message);
        const group = this.#groups.get(addressKey(service));
        if (!group?.has(program))
          throw new VerbsError('EADDRNOTAVAIL', `the device has no socket of ${addressKey(service)}`);
        if (message.type === 'listen') listen(group, service.id, program);
        else if (group.services.get(service.id) === program) group.services.delete(service.id);
        group.steer();
        return {};
      }
      default:
        throw new TypeError(`the broker has no request ${String(message.type)}`);
    }
  }

  async #lend(program: Program, at: HostAddress): Promise<number> {
    const { slot, secret } = program;
    const key = addressKey(at);
    await this.#takeover([at]);
    if (this.#isClosed || this.#programs.get(secret) !== program)
      throw new VerbsError('ECANCELED', 'the program has ended');
    const group = this.#groups.get(key) ?? new PortGroup(at);
    const isNew = !group.has(program);
    if (isNew && group.members.some((member) => member.program?.slot === slot))
      throw new VerbsError('EADDRINUSE', `another device of ${key} has slot ${slot}: open the device again`);
    const fd = group.lend(program);
    if (fd < 0) {
      if (group.isUnused) group.close();
      throw errnoError(fd, `UDP port ${ROCE_PORT} of ${key} cannot be opened`, {
        EADDRINUSE: `UDP port ${ROCE_PORT} of ${key} is taken by an rxe device of this host or by another program`,
        EADDRNOTAVAIL: `${key} is not an address of this host`,
      });
    }
    this.#groups.set(key, group);
    program.addresses.add(key);
    if (isNew) this.#keep();
    return fd;
  }

  /**
   * Waits for the programs of an earlier broker if one of the addresses is in use by a group of this user: they have
   * sockets of it, and slots.
   */
  async #takeover(addresses: readonly HostAddress[]): Promise<void> {
    const isFree = ({ address, scope }: HostAddress, isMember: boolean) =>
      native().ports.isFree(ipBytes(address), ROCE_PORT, scope, isMember) === 0;
    const isTaken = (at: HostAddress) => !this.#groups.has(addressKey(at)) && !isFree(at, false) && isFree(at, true);
    const isEarly = () => performance.now() - this.#startedAt < TAKEOVER_MS;
    while (isEarly() && !this.#isClosed && addresses.some(isTaken)) await sleep(RETRY_MS);
  }
}

/** Returns the addresses of the first message of a program whose controllers the broker serves; else undefined. */
const gidAddressesIn = (message: Message): readonly string[] | undefined =>
  message.isServed === true ? addressesIn(message).map(({ address }) => address) : undefined;

/** @throws VerbsError */
function checkVersion(version: unknown): void {
  if (version === PROTOCOL_VERSION) return;
  throw new VerbsError(
    'EOPNOTSUPP',
    `the broker (pid ${process.pid}) speaks version ${PROTOCOL_VERSION} of its protocol, and the program version ` +
      `${version}: end one of them`,
  );
}

function listen(group: PortGroup, id: bigint, program: Program): void {
  const owner = group.services.get(id);
  if (owner !== undefined && owner !== program)
    throw new VerbsError('EADDRINUSE', `another device on this host listens on service id 0x${id.toString(16)}`);
  if (owner === undefined && group.services.size >= MAX_SERVICES)
    throw new VerbsError('ENOSPC', `the devices of ${addressKey(group.at)} listen on ${MAX_SERVICES} ports, the most`);
  group.services.set(id, program);
}

/** Names the broker that has the namespace's name. */
function other(): string {
  const { unix, closeFd } = native();
  const fd = unix.connect(BROKER_NAME);
  const peer = fd < 0 ? fd : unix.peer(fd);
  if (fd >= 0) closeFd(fd);
  return typeof peer === 'number' ? 'a broker already' : `a broker already: process ${peer.pid} of user ${peer.uid}`;
}
