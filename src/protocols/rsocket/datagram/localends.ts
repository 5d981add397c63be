/**
 * The local ends of a datagram socket: a queue pair for each address of ours that it sends from, as in the stock
 * library. A socket with a device or an address has one end. Any other one has an end for each of our addresses from
 * which the kernel reaches a peer, which is opened with the first message to or from such a peer.
 */
import { isIP } from 'node:net';
import { isWildcard } from '../../../base/address.js';
import { type Closable, Scope } from '../../../base/scope.js';
import { useDevice } from '../../../deviceuse.js';
import { type Device, gidAddress, VerbsError } from '../../../index.js';
import { sourceTowards } from '../../../link/peer.js';
import { socketClosed } from '../../../sockets/errors.js';
import { DatagramPort } from '../../../transport/datagramport.js';
import { encodeHeader, headerBytes, introductionBytes, MESSAGE_BYTES, QKEY } from './wire.js';

/** Messages in flight. */
const SENDS = 64;

/** Settings of the ends of a socket. */
export interface LocalEndsOptions {
  readonly version: 4 | 6;
  /** Device of the program. */
  readonly device: Device | undefined;
  /** Address that the socket is bound to; undefined: all. */
  readonly address: string | undefined;
  /** Receive buffers of an end. */
  readonly receives: number;
}

/** The socket, as its ends see it. */
export interface LocalEndsListener {
  /** A message has come, with its header. @param from IP address of the sender */
  onMessage(end: LocalEnd, from: string, bytes: Buffer): void;
  /** A queue pair or its device has failed. */
  onFailure(error: Error): void;
}

/** A queue pair of a socket. */
export class LocalEnd implements Closable {
  /** Bytes of a message at most, without a header: the same by a queue pair and by UDP. */
  readonly messageBytes: number;
  readonly #ends: LocalEnds;
  readonly #scope: Scope;
  #header: Buffer | undefined;

  /** @param address the address that messages name as that of their sender */
  constructor(
    ends: LocalEnds,
    readonly device: Device,
    readonly port: DatagramPort,
    readonly address: string,
    scope: Scope,
  ) {
    this.#ends = ends;
    this.#scope = scope;
    const version = isIP(address) as 4 | 6;
    const { activeMtu } = device.queryPort();
    this.messageBytes = Math.min(MESSAGE_BYTES - introductionBytes(version), activeMtu - headerBytes(version));
  }

  /** The header of every message. */
  get header(): Buffer {
    this.#header ??= encodeHeader(this.address, this.#ends.udpPort);
    return this.#header;
  }

  /** Whether the device still has the address. */
  get isUsable(): boolean {
    return this.device.gids.some(({ address }) => address === this.address);
  }

  /** Frees the queue pair, and the device if it is not used otherwise. */
  close(): Promise<void> {
    return this.#scope.close();
  }
}

/** An end that reaches peers by one of our addresses. */
interface Entry {
  end: LocalEnd | undefined;
  readonly opening: Promise<LocalEnd>;
}

/** See the head of this file. */
export class LocalEnds implements Closable {
  /** Port of the socket. It is known when the first message leaves. */
  udpPort = 0;
  readonly #options: LocalEndsOptions;
  readonly #listener: LocalEndsListener;
  /** The end of a socket that has only one. */
  #only: LocalEnd | undefined;
  /** By our address. */
  readonly #bySource = new Map<string, Entry>();
  readonly #open = new Set<LocalEnd>();
  #closed: Promise<void> | undefined;

  private constructor(options: LocalEndsOptions, listener: LocalEndsListener) {
    this.#options = options;
    this.#listener = listener;
  }

  /** @throws as `towards`, where the socket has only one end */
  static async open(options: LocalEndsOptions, listener: LocalEndsListener): Promise<LocalEnds> {
    const ends = new LocalEnds(options, listener);
    const { device, address } = options;
    if (device !== undefined || !isWildcard(address)) ends.#only = await ends.#newEnd(address);
    return ends;
  }

  /** The ends that are open. */
  get all(): ReadonlySet<LocalEnd> {
    return this.#open;
  }

  /**
   * Returns the end that reaches a peer, at once if it is open.
   * @param peer IP address, with its zone if it has one
   * @throws as `openDevice`; VerbsError EHOSTUNREACH without a route, EADDRNOTAVAIL when the device does not have the
   * address, ENOMEM; Error ERR_SOCKET_DGRAM_NOT_RUNNING
   */
  towards(peer: string): LocalEnd | Promise<LocalEnd> {
    if (this.#closed !== undefined) throw socketClosed();
    if (this.#only !== undefined) return this.#only;
    const source = sourceTowards(peer);
    const known = this.#bySource.get(source);
    // another interface may have the address by now
    if (known?.end?.isUsable === false) this.#drop(known.end);
    else if (known !== undefined) return known.end ?? known.opening;
    const entry: Entry = { end: undefined, opening: this.#newEnd(source) };
    this.#bySource.set(source, entry);
    entry.opening.then(
      (end) => {
        entry.end = end;
      },
      // the next message tries again
      () => this.#bySource.delete(source),
    );
    return entry.opening;
  }

  /** Frees all queue pairs, and the devices that are not used otherwise. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.allSettled([...this.#bySource.values()].map(({ opening }) => opening));
    await Promise.all([...this.#open].map((end) => end.close()));
    this.#open.clear();
  }

  #drop(end: LocalEnd): void {
    this.#open.delete(end);
    void end.close().catch(() => {});
  }

  /** @param local our address; undefined: any of the device */
  #newEnd(local: string | undefined): Promise<LocalEnd> {
    const { device: given, version, receives } = this.#options;
    return Scope.open(async (scope) => {
      const { device } = scope.add(await useDevice(given, { local }));
      const address = ownAddress(device, version, local);
      const port = await DatagramPort.open(
        device,
        { receives, sends: SENDS, messageBytes: MESSAGE_BYTES, activate: (qp) => qp.activate({ qkey: QKEY }) },
        {
          onDatagram: (datagram) => {
            this.#listener.onMessage(end, datagram.source, datagram.bytes);
            datagram.release();
          },
          onFailure: (error) => this.#listener.onFailure(error),
        },
      );
      scope.add({ close: () => port.close(socketClosed()) });
      const end = new LocalEnd(this, device, port, address, scope);
      this.#open.add(end);
      return end;
    });
  }
}

/**
 * Returns the address that messages name as that of their sender.
 * @throws VerbsError EADDRNOTAVAIL
 */
function ownAddress({ gids }: Device, version: 4 | 6, wanted: string | undefined): string {
  const own = gids.map(({ address }) => address).filter((address) => isIP(address) === version);
  const isAny = isWildcard(wanted);
  const found = isAny ? own[0] : own.find((address) => address === gidAddress(wanted));
  if (found !== undefined) return found;
  throw new VerbsError(
    'EADDRNOTAVAIL',
    `the device has ${isAny ? `no IPv${version} address` : `no address ${wanted}`}`,
  );
}
