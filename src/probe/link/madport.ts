/** A script's datagrams to and from queue pair 1, which the card's own connection manager uses as well. */
import { decodeRoce } from '../packet/decode.js';
import { decodeMad, type Mad } from '../packet/mad.js';
import type { Flow } from '../packet/packets.js';
import { LinkPort } from './linkport.js';
import type { ScriptedLink } from './scriptedlink.js';

/** Queue pair number of management datagrams. */
const GSI = 1;

/** Returns the message of a frame to queue pair 1, if it is one of the connection manager. */
function madOf(frame: Uint8Array): Mad | undefined {
  const packet = decodeRoce(frame);
  return packet?.bth.destQp === GSI ? decodeMad(packet.payload) : undefined;
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
      const mad = madOf(frame);
      if (mad === undefined) return false;
      return tids.has(mad.header.tid) || ('remoteCommId' in mad.fields && ids.has(mad.fields.remoteCommId));
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
