/** A connection between the broker and a program: JSON messages with file descriptors. */
import { constants } from 'node:os';
import { type Message, parseMessage } from '../../base/message.js';
import { type NativePoller, native, type UnixMessage } from '../../native.js';
import { closeFds } from '../fds.js';
import { openPoller } from '../poller.js';

/** A process at the other end, as the kernel knows it (SO_PEERCRED). */
export interface PeerProcess {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

/** Receives what happens on a connection. */
export interface ConnectionEvents {
  /** @param fds the receiver owns them */
  onMessage(message: Message, fds: readonly number[]): void;
  /** The peer has closed the connection, or has sent what is no message. The connection is closed. */
  onEnd(): void;
}

/** Messages that are taken before other events of the loop have their turn. */
const BATCH = 64;
const NO_PEER: PeerProcess = { pid: 0, uid: -1, gid: -1 };
const NO_MESSAGE: UnixMessage = { bytes: new Uint8Array(0), fds: [] };

/** See the head of this file. Messages arrive from the next turn of the event loop on. */
export class BrokerConnection {
  readonly peer: PeerProcess;
  readonly #fd: number;
  #events: ConnectionEvents;
  readonly #poller: NativePoller;
  #keepsAlive = false;
  #isPaused = false;
  #isClosed = false;

  /**
   * @param fd a connected socket, which the connection owns
   * @throws VerbsError EIO; the socket is still the caller's
   */
  constructor(fd: number, events: ConnectionEvents) {
    this.#fd = fd;
    this.#events = events;
    const peer = native().unix.peer(fd);
    this.peer = typeof peer === 'number' ? NO_PEER : peer;
    this.#poller = openPoller([fd], () => this.#onReadable());
    this.#wait();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Replaces those who are told, and ends a pause. */
  set events(events: ConnectionEvents) {
    this.#events = events;
    this.#isPaused = false;
    if (!this.#isClosed) this.#wait();
  }

  /** Leaves further messages, and the end, until `events` is set. */
  pause(): void {
    this.#isPaused = true;
  }

  /** Whether the connection keeps the process running. Default: false. */
  set keepsAlive(value: boolean) {
    this.#keepsAlive = value;
    if (!this.#isClosed) this.#wait();
  }

  /** Sends a message. @returns false if it cannot be delivered: the peer has gone, or does not read */
  send(message: Message, fds: readonly number[] = []): boolean {
    return !this.#isClosed && native().unix.send(this.#fd, Buffer.from(JSON.stringify(message)), fds) === 0;
  }

  /** Closes the connection, without an event. A second call does nothing. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#poller.close();
    native().closeFd(this.#fd);
  }

  #wait(): void {
    if (!this.#isPaused) this.#poller.start(-1, this.#keepsAlive);
  }

  #onReadable(): void {
    for (let n = 0; n < BATCH && !this.#isClosed && !this.#isPaused; n++) {
      const received = native().unix.receive(this.#fd, false);
      if (received === -constants.errno.EAGAIN) break;
      const { bytes, fds } = typeof received === 'object' ? received : NO_MESSAGE;
      const message = parseMessage(bytes);
      if (message !== undefined) {
        this.#events.onMessage(message, fds);
        continue;
      }
      closeFds(fds);
      this.#end();
    }
    if (!this.#isClosed) this.#wait();
  }

  #end(): void {
    this.close();
    this.#events.onEnd();
  }
}
