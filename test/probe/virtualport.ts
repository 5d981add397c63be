/** Scripts against our own card in virtual time: the card is a responder with a region and posted receives. */
import { flowOf } from '../../src/probe/packet/packets.js';
import { parseScript } from '../../src/probe/script/parse.js';
import type { Arrival, PacketPort } from '../../src/probe/script/port.js';
import { type RunOptions, runScript, type ScriptResult } from '../../src/probe/script/run.js';
import { type ConnectOptions, type QpSizes, Rig, type RigQp } from '../kit/rig.js';

export const TARGET_VA = 0x4000_0000_0000n;
const REGION_BYTES = 65536;
const RECEIVES = 32;

export interface CardPeerOptions extends Partial<ConnectOptions>, QpSizes {
  readonly receives?: number;
}

/** A card whose queue pair is the script's peer. Its first PSN and the script's are 1000 and 100. */
export class CardPeer implements PacketPort {
  readonly flow;
  readonly mtu = 1024;
  readonly target;
  /** Everything that the card has sent and the script has not taken. */
  readonly #arrivals: Arrival[] = [];
  #now = 1_000_000;

  private constructor(
    readonly rig: Rig,
    readonly qp: RigQp,
    options: CardPeerOptions,
  ) {
    this.flow = flowOf({ destQp: qp.qpn });
    this.target = rig.region(REGION_BYTES, 15, TARGET_VA);
    const buffer = rig.region(RECEIVES * 4096);
    qp.connect({ destQpn: this.flow.srcQp, sqPsn: 1000, rqPsn: 100, ...options });
    for (let i = 0; i < (options.receives ?? RECEIVES); i++) qp.recv(i + 1, [buffer.piece(i * 4096, 4096)]);
  }

  static async open(options: CardPeerOptions = {}): Promise<CardPeer> {
    const rig = await Rig.create();
    return new CardPeer(rig, rig.qp(options), options);
  }

  get variables(): Record<string, bigint> {
    return { psn: 100n, va: TARGET_VA, rkey: BigInt(this.target.rkey), peer_psn: 1000n };
  }

  now(): number {
    return this.#now;
  }

  send(frame: Uint8Array): number {
    this.#collect(this.rig.in(this.#now, frame));
    return this.#now;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      this.#collect(this.rig.out(this.#now));
      const first = this.#arrivals.shift();
      if (first !== undefined) return first;
      if (this.#now >= until) return undefined;
      const deadline = this.rig.x.nextDeadline();
      this.#now = deadline === 0 ? until : Math.min(until, Math.max(deadline, this.#now));
    }
  }

  #collect(frames: readonly Uint8Array[]): void {
    for (const frame of frames) this.#arrivals.push({ frame, at: this.#now });
  }
}

/** Runs the text of a script against a new card. */
export async function runText(
  text: string,
  options: CardPeerOptions & Partial<RunOptions> = {},
): Promise<ScriptResult & { peer: CardPeer }> {
  const peer = await CardPeer.open(options);
  const variables = { ...peer.variables, ...options.variables };
  const { offers } = options;
  return {
    ...(await runScript(parseScript(text, 'test.roce'), { port: peer, variables, ...(offers && { offers }) })),
    peer,
  };
}
