/**
 * A program that drives rdma_cm through the broker by the commands of /dev/infiniband/rdma_cm, because its queue pairs
 * are its own. Each time that it opens the file it gets two streams: one for commands and their answers, and one of
 * events, which is the file to the program: it waits for it, and its end closes the file.
 *
 * A command: `struct rdma_ucm_cmd_hdr` and what follows it, with the value of an option behind it. An answer: errno and
 * length, 32 bits each, and the response. An event: the number of the id among whose events it counts, 32 bits, and the
 * `struct rdma_ucm_event_resp`.
 */
import { Socket } from 'node:net';
import { type CmEvent, EventChannel } from '../../cm/channel.js';
import type { CmId } from '../../cm/cmid.js';
import { VerbsError } from '../../errors.js';
import { errnoError } from '../../link/errno.js';
import { closeFds } from '../../link/fds.js';
import { native } from '../../native.js';
import { Command, readAddress, readConnParam, Size } from './abi.js';
import { errnoOf, type UserHost, UserId } from './userid.js';

/** A file of the program. */
interface File {
  readonly number: number;
  readonly commands: Socket;
  readonly events: Socket;
}

/** Bytes of errno and length. */
const ANSWER_HEAD = 8;
const NOTHING = new Uint8Array(0);

/** Returns a number as a response has it. */
function word(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** See the head of this file. */
export class CmProgram {
  readonly #files = new Map<number, File>();
  readonly #ids = new Map<number, UserId>();
  readonly #byCm = new WeakMap<CmId, UserId>();
  /** The file of each id, by the number of the id. */
  readonly #fileOf = new Map<number, File>();
  readonly #channel = new EventChannel();
  readonly #host: UserHost;
  #lastFile = 0;
  #lastId = 0;

  /** @param host as of its ids */
  constructor(host: UserHost) {
    this.#host = host;
    void this.#dispatch();
  }

  /**
   * Opens a file.
   * @returns its number, and the program's ends of its streams: commands and events. The caller closes them.
   * @throws VerbsError EIO without file descriptors
   */
  open(): { readonly number: number; readonly fds: readonly [commands: number, events: number] } {
    const commands = native().unix.pair();
    if (typeof commands === 'number') throw errnoError(commands, 'rdma_cm has no stream', {});
    const events = native().unix.pair();
    if (typeof events === 'number') {
      closeFds(commands);
      throw errnoError(events, 'rdma_cm has no stream', {});
    }
    const number = ++this.#lastFile;
    const file = { number, commands: socketOn(commands[0]), events: socketOn(events[0]) };
    this.#files.set(number, file);
    for (const socket of [file.commands, file.events]) {
      socket.on('error', () => socket.destroy());
      socket.on('close', () => this.#close(file));
    }
    // nothing is sent on it
    file.events.resume();
    this.#serve(file);
    return { number, fds: [commands[1], events[1]] };
  }

  /** Ends all connections of the program. */
  close(): void {
    for (const file of [...this.#files.values()]) this.#close(file);
    this.#channel.close();
  }

  #close(file: File): void {
    if (!this.#files.delete(file.number)) return;
    file.commands.destroy();
    file.events.destroy();
    for (const id of [...this.#ids.values()]) if (this.#fileOf.get(id.number) === file) this.#destroy(id);
  }

  #destroy(id: UserId): void {
    this.#ids.delete(id.number);
    this.#fileOf.delete(id.number);
    id.close();
  }

  /** Carries out the commands of a file, one after the other. */
  #serve(file: File): void {
    let received = Buffer.alloc(0);
    let isBusy = false;
    const next = async () => {
      if (isBusy) return;
      isBusy = true;
      for (let length = lengthOf(received); length <= received.length; length = lengthOf(received)) {
        const command = Uint8Array.from(received.subarray(0, length));
        received = received.subarray(length);
        const [errno, response] = await this.#answer(file, command);
        if (file.commands.destroyed) return;
        const head = new DataView(new ArrayBuffer(ANSWER_HEAD));
        head.setInt32(0, errno, true);
        head.setUint32(4, response.length, true);
        file.commands.write(Buffer.concat([new Uint8Array(head.buffer), response]));
      }
      isBusy = false;
    };
    file.commands.on('data', (data: Buffer) => {
      received = Buffer.concat([received, data]);
      void next();
    });
  }

  async #answer(file: File, command: Uint8Array): Promise<[errno: number, response: Uint8Array]> {
    try {
      const view = new DataView(command.buffer, Size.HEADER);
      return [0, await this.#execute(file, new DataView(command.buffer).getUint32(0, true), view)];
    } catch (error) {
      return [errnoOf(error), NOTHING];
    }
  }

  /** @throws VerbsError, RangeError, TypeError */
  async #execute(file: File, command: number, view: DataView): Promise<Uint8Array> {
    const idAt = (at: number) => this.#find(view.getUint32(at, true));
    switch (command) {
      case Command.CREATE_ID: {
        const [portSpace, qpType] = [view.getUint16(16, true), view.getUint8(18)];
        const number = ++this.#lastId;
        const channel = this.#channel;
        const id = UserId.create(number, view.getBigUint64(0, true), this.#host, portSpace, qpType, { channel });
        this.#add(id, file);
        return word(number);
      }
      case Command.DESTROY_ID:
        this.#destroy(idAt(8));
        // the program counts its events itself
        return word(0);
      case Command.BIND_IP:
        await idAt(36).bind(addressAt(view, 8));
        return NOTHING;
      case Command.BIND:
        await idAt(0).bind(addressAt(view, 8));
        return NOTHING;
      case Command.RESOLVE_IP:
        await idAt(56).resolve(readAddress(view, 0), addressAt(view, 28));
        return NOTHING;
      case Command.RESOLVE_ADDR:
        await idAt(0).resolve(view.getUint16(8, true) === 0 ? undefined : readAddress(view, 16), addressAt(view, 144));
        return NOTHING;
      case Command.RESOLVE_ROUTE:
        await idAt(0).cm.resolveRoute();
        return NOTHING;
      case Command.QUERY_ROUTE:
        return idAt(8).route();
      case Command.CONNECT:
        await idAt(272).connect(readConnParam(view, 0));
        return NOTHING;
      case Command.LISTEN:
        await idAt(0).listen(view.getInt32(4, true));
        return NOTHING;
      case Command.ACCEPT:
        await idAt(280).accept(view.getBigUint64(0, true), readConnParam(view, 8));
        return NOTHING;
      case Command.REJECT: {
        const length = view.getUint8(4);
        const privateData = new Uint8Array(view.buffer, view.byteOffset + 8, length);
        await idAt(0).reject(privateData, view.getUint8(5));
        return NOTHING;
      }
      case Command.DISCONNECT:
        idAt(0).disconnect();
        return NOTHING;
      case Command.INIT_QP_ATTR:
        return idAt(8).qpAttributes(view.getUint32(12, true));
      case Command.SET_OPTION: {
        const value = new DataView(view.buffer, view.byteOffset + Size.SET_OPTION);
        const [level, name] = [view.getUint32(12, true), view.getUint32(16, true)];
        if (idAt(8).setOption(level, name, value)) return NOTHING;
        throw new VerbsError('EOPNOTSUPP', `option ${name} of level ${level} is not known`);
      }
      case Command.NOTIFY:
        idAt(0).cm.communicationEstablished();
        return NOTHING;
      case Command.JOIN_IP_MCAST:
        return this.#join(idAt(44), view.getBigUint64(8, true), readAddress(view, 16)?.address);
      case Command.JOIN_MCAST:
        return this.#join(idAt(16), view.getBigUint64(8, true), readAddress(view, 24)?.address);
      case Command.LEAVE_MCAST: {
        const membership = view.getUint32(8, true);
        if ([...this.#ids.values()].some((id) => id.leaveGroup(membership))) return word(0);
        throw new VerbsError('EINVAL', `there is no membership ${membership}`);
      }
      case Command.MIGRATE_ID:
        this.#fileOf.set(idAt(8).number, file);
        return word(0);
      default:
        throw new VerbsError('EOPNOTSUPP', `command ${command} is not known`);
    }
  }

  #join(id: UserId, uid: bigint, group: string | undefined): Uint8Array {
    if (group === undefined) throw new VerbsError('EINVAL', 'the group has no IP address');
    const membership = ++this.#lastId;
    this.#send(id, membership, id.joinGroup(membership, uid, group));
    return word(membership);
  }

  #find(number: number): UserId {
    const id = this.#ids.get(number);
    if (id !== undefined) return id;
    throw new VerbsError('EINVAL', `there is no id ${number}`);
  }

  #add(id: UserId, file: File): void {
    this.#ids.set(id.number, id);
    this.#byCm.set(id.cm, id);
    this.#fileOf.set(id.number, file);
  }

  async #dispatch(): Promise<void> {
    try {
      for (;;) this.#onEvent(await this.#channel.next());
    } catch {
      // the channel is closed: the program has ended
    }
  }

  #onEvent(event: CmEvent): void {
    const isRequest = event.type === 'CONNECT_REQUEST';
    const id = this.#byCm.get(isRequest ? event.listenId : event.id);
    const file = id && this.#fileOf.get(id.number);
    if (id === undefined || file === undefined) {
      if (isRequest) void event.id.close();
      return;
    }
    let request: UserId | undefined;
    if (isRequest) {
      request = id.ofRequest(++this.#lastId, event.id);
      this.#add(request, file);
    }
    const translated = id.translate(event, request);
    if (translated !== undefined) this.#send(id, id.number, translated);
  }

  #send(id: UserId, counted: number, bytes: Uint8Array): void {
    const file = this.#fileOf.get(id.number);
    if (file !== undefined && !file.events.destroyed) file.events.write(Buffer.concat([word(counted), bytes]));
  }
}

function socketOn(fd: number): Socket {
  native().releaseFd(fd);
  return new Socket({ fd, readable: true, writable: true });
}

/** Returns the bytes of the first command of a stream; Infinity as long as that is not known. */
function lengthOf(received: Buffer): number {
  if (received.length < Size.HEADER) return Number.POSITIVE_INFINITY;
  const length = Size.HEADER + received.readUInt16LE(4);
  const isOption = received.readUInt32LE(0) === Command.SET_OPTION;
  if (!isOption) return length;
  // the value of the option follows
  return received.length < length ? Number.POSITIVE_INFINITY : length + Math.min(received.readUInt32LE(length - 4), 64);
}

/** @throws VerbsError EINVAL if there is no IP address */
function addressAt(view: DataView, at: number) {
  const address = readAddress(view, at);
  if (address !== undefined) return address;
  throw new VerbsError('EINVAL', 'the address is not of IP');
}
