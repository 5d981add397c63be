/** The device's end of the broker: its slot, and a socket for each of its addresses. */
import { Deferred } from '../../base/deferred.js';
import type { Message } from '../../base/message.js';
import { performance, sleep } from '../../base/timers.js';
import { VerbsError } from '../../errors.js';
import { native } from '../../native.js';
import { closeFds } from '../fds.js';
import { BrokerConnection, type ConnectionEvents } from './connection.js';
import { addressKey, errorIn, type HostAddress, PROTOCOL_VERSION, type Service, serviceMessage } from './protocol.js';
import { connectBroker } from './start.js';

interface Reply {
  readonly message: Message;
  /** The receiver owns them. */
  readonly fds: readonly number[];
}

/** Time between two attempts to reach the next broker (ms). */
const RETRY_MS = 100;
/** Time that the broker has for a reply (ms): it may wait for programs of an earlier one. */
const REPLY_MS = 10_000;

/** See the head of this file. When the broker ends, the client starts another one and keeps its slot. */
export class BrokerClient {
  /** Bits 16 to 23 of the device's queue pair numbers, and the first byte of its communication ids: 1 to 255. */
  readonly slot: number;
  /** Called when a broker does not know the slot any more: the sockets may receive what is for another device. */
  onLost: (reason: VerbsError) => void = () => {};
  /** Called with a stream of a controller, which the receiver owns. */
  onControl: (fd: number) => void = (fd) => native().closeFd(fd);
  readonly #secret: string;
  readonly #lease: number;
  #vault: number;
  #connection: BrokerConnection | undefined;
  #isClosed = false;
  #lastId = 0;
  readonly #pending = new Map<number, { readonly reply: Deferred<Reply>; readonly request: Message }>();
  readonly #services = new Map<string, Service>();
  #isAgent = false;

  /**
   * Joins the broker of this network namespace.
   * @param onlyLocal whether the device takes its packets from the interfaces itself, except for requests of the CM
   * @throws VerbsError EOPNOTSUPP if there is no broker and none can be started, or it has another version; EPERM if it
   * does not admit this user; ENOSPC if it serves as many devices as it can
   */
  static async join(addresses: readonly HostAddress[], onlyLocal: boolean): Promise<BrokerClient> {
    const until = performance.now() + REPLY_MS;
    for (;;) {
      const reply = await converse(await connectBroker(), { type: 'join', addresses, onlyLocal });
      if (reply !== undefined) return new BrokerClient(reply);
      // a broker that ends as it is found says nothing
      if (performance.now() > until) throw new VerbsError('ETIMEDOUT', 'brokers end the connection without a reply');
      await sleep(RETRY_MS);
    }
  }

  private constructor({ connection, message, fds }: Greeting) {
    const [lease, vault] = fds;
    this.slot = message.slot as number;
    this.#secret = message.secret as string;
    this.#lease = lease as number;
    this.#vault = vault as number;
    this.#use(connection);
  }

  /** Returns a socket that is bound to UDP port 4791 of an address. The caller owns it. @throws VerbsError */
  async socketOf(at: HostAddress): Promise<number> {
    const { fds } = await this.#request({ type: 'socket', ...at }, () => this.release(at));
    const [socket, ...others] = fds;
    closeFds(others);
    if (socket === undefined) throw new VerbsError('EIO', 'the broker has lent no socket');
    return socket;
  }

  /** Gives the socket of an address back. The device must have closed it. */
  release(at: HostAddress): void {
    this.#request({ type: 'release', ...at }).catch(() => {});
  }

  /** The device handles messages to queue pair 1 from now on. */
  async handleMads(): Promise<void> {
    this.#isAgent = true;
    await this.#request({ type: 'agent' });
  }

  /**
   * Requests of the CM to a service reach the device.
   * @returns ends that
   * @throws VerbsError EADDRINUSE if another device has the service; ENOSPC
   */
  async listen(service: Service): Promise<() => void> {
    const unlisten = () => void this.#request({ type: 'unlisten', ...serviceMessage(service) }).catch(() => {});
    await this.#request({ type: 'listen', ...serviceMessage(service) }, unlisten);
    const key = `${addressKey(service)} ${service.id}`;
    this.#services.set(key, service);
    return () => {
      this.#services.delete(key);
      unlisten();
    };
  }

  /** Gives the slot back. A second call does nothing. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#connection?.close();
    closeFds([this.#lease, this.#vault]);
    this.#fail(new VerbsError('ECANCELED', 'the device was closed'));
  }

  /** @param undo called when there is no reply in time: the broker may execute the request yet */
  #request(request: Message, undo = () => {}): Promise<Reply> {
    if (this.#isClosed) return Promise.reject(new VerbsError('ECANCELED', 'the device was closed'));
    const id = ++this.#lastId;
    const reply = new Deferred<Reply>(() => {
      this.#pending.delete(id);
      if (this.#pending.size === 0 && this.#connection) this.#connection.keepsAlive = false;
    });
    this.#pending.set(id, { reply, request: { id, ...request } });
    if (this.#connection) this.#connection.keepsAlive = true;
    // one that cannot be sent is sent to the next broker
    this.#connection?.send({ id, ...request });
    void reply.isSettledWithin(REPLY_MS).then((inTime) => {
      if (inTime) return;
      reply.reject(noReply(this.#connection));
      undo();
    });
    return reply.promise;
  }

  #use(connection: BrokerConnection): void {
    this.#connection = connection;
    connection.events = {
      onMessage: (message, fds) => this.#onMessage(message, fds),
      onEnd: () => void this.#reconnect(),
    };
    // the broker may have ended right after its reply
    if (connection.isClosed) return void this.#reconnect();
    for (const { request } of this.#pending.values()) connection.send(request);
    connection.keepsAlive = this.#pending.size > 0;
  }

  #onMessage(message: Message, fds: readonly number[]): void {
    const [fd, ...others] = fds;
    if (message.type === 'control' && fd !== undefined) {
      closeFds(others);
      this.onControl(fd);
    } else {
      this.#onReply(message, fds);
    }
  }

  #onReply(message: Message, fds: readonly number[]): void {
    const pending = this.#pending.get(message.id as number);
    const error = errorIn(message);
    if (pending !== undefined && error === undefined) {
      pending.reply.resolve({ message, fds });
      return;
    }
    closeFds(fds);
    pending?.reply.reject(error);
  }

  async #reconnect(): Promise<void> {
    this.#connection = undefined;
    while (!this.#isClosed) {
      try {
        const greeting = await converse(await connectBroker(), this.#rejoin(), [this.#vault]);
        if (greeting === undefined) continue;
        const { connection, fds } = greeting;
        if (this.#isClosed) {
          connection.close();
          closeFds(fds);
          return;
        }
        native().closeFd(this.#vault);
        this.#vault = fds[0] as number;
        return this.#use(connection);
      } catch (error) {
        if (error instanceof VerbsError && error.code === 'ENOENT') return this.#lose(error);
        // The device keeps its sockets, and its slot if the broker gives way to one that admits it.
        if (error instanceof VerbsError) this.#fail(error);
        await sleep(RETRY_MS, undefined, { ref: this.#pending.size > 0 });
      }
    }
  }

  #rejoin(): Message {
    return {
      type: 'rejoin',
      slot: this.slot,
      secret: this.#secret,
      isAgent: this.#isAgent,
      services: [...this.#services.values()].map(serviceMessage),
    };
  }

  #lose(reason: VerbsError): void {
    this.#fail(reason);
    this.onLost(reason);
  }

  #fail(reason: VerbsError): void {
    for (const { reply } of [...this.#pending.values()]) reply.reject(reason);
  }
}

/** The broker's reply to the first message. */
export interface Greeting extends Reply {
  readonly connection: BrokerConnection;
}

const noReply = (connection: BrokerConnection | undefined) => {
  const who = connection ? `the broker (pid ${connection.peer.pid})` : 'the next broker';
  return new VerbsError('ETIMEDOUT', `${who} does not reply within ${REPLY_MS / 1000} s: is it stopped? End it`);
};

/** @throws VerbsError EIO; the socket is closed */
function connectionOn(fd: number, events: ConnectionEvents): BrokerConnection {
  try {
    return new BrokerConnection(fd, events);
  } catch (error) {
    native().closeFd(fd);
    throw error;
  }
}

/**
 * Sends the first message of a connection.
 * @returns undefined if the broker ends the connection without a reply
 * @throws VerbsError if it refuses; ETIMEDOUT
 */
export async function converse(
  fd: number,
  message: Message,
  fds: readonly number[] = [],
): Promise<Greeting | undefined> {
  const reply = new Deferred<Reply | undefined>();
  const connection = connectionOn(fd, {
    onMessage: (answer, received) => {
      // what follows is for the events of the caller
      connection.pause();
      reply.resolve({ message: answer, fds: received });
    },
    onEnd: () => reply.resolve(undefined),
  });
  const own = process.getuid?.() ?? 0;
  const { uid, pid } = connection.peer;
  if (uid !== own && uid !== 0 && own === 0) {
    connection.close();
    throw new VerbsError('EPERM', `the broker (pid ${pid}) belongs to user ${uid}, whom root does not trust`);
  }
  connection.keepsAlive = true;
  // a broker without file descriptors has replied before it reads this
  connection.send({ id: 0, version: PROTOCOL_VERSION, ...message }, fds);
  if (!(await reply.isSettledWithin(REPLY_MS))) {
    connection.close();
    throw noReply(connection);
  }
  const answer = await reply.promise;
  connection.keepsAlive = false;
  if (answer === undefined) {
    connection.close();
    return undefined;
  }
  const error = errorIn(answer.message);
  if (error === undefined) return { connection, ...answer };
  connection.close();
  throw error;
}
