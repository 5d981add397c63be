/** The messages of a datagram socket that are not read yet. They stay in their receive buffers. */
import { isIPv6 } from 'node:net';
import { AsyncQueue } from '../base/asyncqueue.js';
import { checkWait, type WaitOptions } from '../base/waiting.js';
import type { Datagram } from '../transport/datagramport.js';
import { copyOf } from '../verbs/objects/copy.js';

/** A queue pair as the destination of datagrams, for which no port has to be looked up. A `RemoteInfo` is one. */
export interface DatagramAddress {
  /** IP address of the queue pair's device. */
  readonly address: string;
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  /** Q_Key of the queue pair, 32 bits. Default `UDP_QKEY`, as all sockets have it. */
  readonly qkey?: number;
  /** Address of this device to send from. Default, and for other addresses: chosen by the route. */
  readonly localAddress?: string;
}

/** The sender of a datagram. `send(message, rinfo)` replies to it. */
export interface RemoteInfo extends DatagramAddress {
  /** IP address of the sender. */
  readonly address: string;
  /** Family of the address. */
  readonly family: 'IPv4' | 'IPv6';
  /**
   * Port of the sender if this socket has sent to this port before, so that the queue pair is known to be that of the
   * port; otherwise 0. Datagrams carry no port, only the number of the sender's queue pair.
   */
  readonly port: number;
  /** Length of the message in bytes. */
  readonly size: number;
  /** Address that the datagram was sent to: one of this device, or a multicast group. */
  readonly localAddress: string;
}

/** A received datagram. */
export interface DatagramMessage {
  /** The message's bytes, a copy that belongs to the caller. */
  readonly data: Buffer;
  /** Its sender. */
  readonly rinfo: RemoteInfo;
}

/** The socket, as its inbox sees it. */
export interface InboxOwner {
  /** The port of a sender, 0 when it is not known. */
  portOf(address: string, qpNum: number): number;
  /** Whether the socket takes messages of this sender. */
  accepts(rinfo: RemoteInfo): boolean;
}

export class Inbox {
  /** Called with each message as it arrives; undefined: messages wait for `next`. */
  #listener: ((message: DatagramMessage) => void) | undefined;
  readonly #owner: InboxOwner;
  /** When all buffers are in use, the card drops what arrives, and counts it. */
  readonly #unread: Datagram[] = [];
  /** Messages for readers that wait. */
  readonly #messages = new AsyncQueue<DatagramMessage | undefined>();

  constructor(owner: InboxOwner) {
    this.#owner = owner;
  }

  /** Passes all messages to a listener, those that wait at first; undefined: they wait for `next`. */
  listen(listener: ((message: DatagramMessage) => void) | undefined): void {
    this.#listener = listener;
    // The listener may remove itself.
    while (this.#listener !== undefined && this.#unread.length > 0) {
      const message = this.#take(this.#unread.shift() as Datagram);
      if (message !== undefined) this.#listener(message);
    }
  }

  /** Delivers a message, or keeps it until it is read. */
  onDatagram(datagram: Datagram): void {
    if (this.#messages.isEnded) return;
    if (this.#listener === undefined && this.#messages.waiting === 0) {
      this.#unread.push(datagram);
      return;
    }
    const message = this.#take(datagram);
    if (message === undefined) return;
    if (this.#listener !== undefined) this.#listener(message);
    else this.#messages.put(message);
  }

  /** Returns the next message, undefined at the end. */
  async next(wait: WaitOptions): Promise<DatagramMessage | undefined> {
    checkWait(wait);
    while (this.#unread.length > 0) {
      const message = this.#take(this.#unread.shift() as Datagram);
      if (message !== undefined) return message;
    }
    return this.#messages.take(wait, 'no message');
  }

  /** Drops what is unread. Readers get the error, or undefined. @returns whether a reader has got the error */
  end(error: Error | undefined): boolean {
    this.#unread.length = 0;
    const { waiting } = this.#messages;
    if (error === undefined) this.#messages.endWith(undefined);
    else this.#messages.end(error);
    return error !== undefined && waiting > 0;
  }

  /** Copies a message and releases its buffer. @returns undefined for a sender that the socket does not accept */
  #take(datagram: Datagram): DatagramMessage | undefined {
    const { source: address, destination: localAddress, srcQp: qpNum, bytes } = datagram;
    const rinfo: RemoteInfo = {
      address,
      family: isIPv6(address) ? 'IPv6' : 'IPv4',
      port: this.#owner.portOf(address, qpNum),
      size: bytes.length,
      qpNum,
      localAddress,
    };
    const data = this.#owner.accepts(rinfo) ? copyOf(bytes) : undefined;
    datagram.release();
    return data && { data, rinfo };
  }
}
