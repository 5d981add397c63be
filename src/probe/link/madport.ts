/** A script's datagrams to and from queue pair 1, which the card's own connection manager uses as well. */
import { decodeRoce } from '../packet/decode.js';
import { decodeMad, type Mad } from '../packet/mad.js';
import type { Flow } from '../packet/packets.js';
import { LinkPort } from './linkport.js';
import type { ScriptedLink } from './scriptedlink.js';

/** Queue pair number of management datagrams. */
const GSI = 1;

/** Offset of the transaction id in a management datagram (IBTA 13.4.3). */
const [TID_AT, TID_END] = [8, 16];

/** Returns the payload of a frame to queue pair 1. */
function datagramOf(frame: Uint8Array): Uint8Array | undefined {
  const packet = decodeRoce(frame);
  return packet?.bth.destQp === GSI ? packet.payload : undefined;
}

/** Returns the message of a frame to queue pair 1, if it is one of the connection manager. */
function madOf(frame: Uint8Array): Mad | undefined {
  const payload = datagramOf(frame);
  return payload && decodeMad(payload);
}

/** Returns the transaction id of a datagram, whatever is wrong with the rest of it. */
function tidOf(payload: Uint8Array): bigint | undefined {
  if (payload.length < TID_END) return undefined;
  return new DataView(payload.buffer, payload.byteOffset).getBigUint64(TID_AT);
}

/**
 * Sends datagrams to queue pair 1 of a peer, and receives the answers: those with a transaction id or a communication
 * id that it has sent. All others are the card's.
 */
export class MadPort extends LinkPort {
  readonly #ids: Set<number>;
  readonly #tids: Set<bigint>;

  /** @param flow addresses from our queue pair 1 to that of the peer @throws RangeError if a script has it already */
  constructor(link: ScriptedLink, flow: Flow, mtu: number) {
    const ids = new Set<number>();
    const tids = new Set<bigint>();
    const isAnswer = (frame: Uint8Array) => {
      const payload = datagramOf(frame);
      if (payload === undefined) return false;
      // a datagram of another length is no message, but an answer to one
      const tid = tidOf(payload);
      if (tid !== undefined && tids.has(tid)) return true;
      const fields = decodeMad(payload)?.fields;
      return fields !== undefined && 'remoteCommId' in fields && ids.has(fields.remoteCommId);
    };
    super(link.open(GSI, isAnswer), flow, mtu);
    this.#ids = ids;
    this.#tids = tids;
  }

  override send(frame: Uint8Array): number {
    const mad = madOf(frame);
    if (mad !== undefined) {
      this.#tids.add(mad.header.tid);
      if ('localCommId' in mad.fields) this.#ids.add(mad.fields.localCommId);
    }
    return super.send(frame);
  }

  /** Gives queue pair 1 back to the card alone. */
  close(): void {
    this.queue.close();
  }
}
