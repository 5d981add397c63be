/** The other end of a connection. */
import { waitFor } from '../../base/waiting.js';
import type { CmEvent, CmId } from '../../cm/index.js';
import { isDisconnect } from '../../transport/disconnect.js';
import type { PeerData } from './privatedata.js';

/** Time that the answer to our DREQ has, before the queue pair is destroyed without it (ms). */
const DISCONNECT_TIMEOUT = 1000;

/** The connection, as its peer knows it. */
export interface PeerListener {
  /** The peer has disconnected, or with `error` is lost. */
  onDisconnected(error?: Error): void;
  /** The connection could not be established. */
  fail(error: Error): void;
}

/** The other end of a connection. */
export interface Peer extends PeerData {
  readonly address: string;
  readonly port: number;
  /** Reports the end of the connection, also one that has come already. */
  watch(listener: PeerListener): void;
  /** Disconnects from the peer. Resolves when the peer has answered, or is given up. */
  disconnect(): Promise<void>;
}

/** A peer that rdma_cm has connected, or is about to. */
export class CmPeer implements Peer {
  readonly address: string;
  readonly port: number;
  readonly privateData: Uint8Array;
  readonly messageBytes: number | undefined;
  readonly #id: CmId;

  /** @param data private data of its connection request or reply */
  constructor(id: CmId, { privateData, messageBytes }: PeerData) {
    this.#id = id;
    this.address = id.remoteAddress?.address ?? '';
    this.port = id.remoteAddress?.port ?? 0;
    this.privateData = privateData;
    this.messageBytes = messageBytes;
  }

  watch(listener: PeerListener): void {
    const onEvent = (event: CmEvent) => {
      if (isDisconnect(event)) listener.onDisconnected(event.error);
      else if (event.type === 'REJECTED' || event.type === 'UNREACHABLE') listener.fail(event.error);
    };
    const { channel } = this.#id;
    channel.observe(onEvent);
    // The peer may have disconnected already.
    for (let event = channel.poll(); event !== undefined; event = channel.poll()) onEvent(event);
  }

  /** Sends DREQ and waits for the answer, but not long: the peer may have vanished. */
  async disconnect(): Promise<void> {
    try {
      await waitFor(this.#id.disconnect(), 'no answer to the disconnect request', { timeout: DISCONNECT_TIMEOUT });
    } finally {
      await this.#id.close();
    }
  }
}
