/** A target whose path loses packets of either direction, by a seed, or changes those of the peer. */
import type {
  Requester,
  RequesterOptions,
  Responder,
  ResponderOptions,
  Target,
} from '../../../src/probe/checks/target.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import { Random } from '../../kit/random.js';

/** Options of a path. */
export interface PathOptions {
  /** Probability of a loss, or that of a packet to the peer and of one from it. Absent: 0. */
  readonly loss?: number | readonly [forth: number, back: number];
  readonly seed?: number;
  /** The longest frame that passes to the peer, and from it. Absent: each. */
  readonly longest?: readonly [forth: number, back: number];
  /** Changes a packet of the peer. @param count number of packets before it @returns the frames that arrive instead */
  readonly change?: (frame: Uint8Array, count: number) => readonly Uint8Array[];
}

/** A path to the queue pairs of another target, but for its connection manager. */
export class Path implements Target {
  readonly #random: Random;
  readonly #loss: readonly [number, number];
  #count = 0;

  constructor(
    readonly inner: Target,
    readonly options: PathOptions,
  ) {
    const { loss = 0, seed = 1 } = options;
    this.#random = new Random(seed);
    this.#loss = typeof loss === 'number' ? [loss, loss] : loss;
  }

  async responder(options: ResponderOptions): Promise<Responder | string> {
    const found = await this.inner.responder(options);
    return typeof found === 'string' ? found : this.#behind(found);
  }

  async requester(options: RequesterOptions): Promise<Requester | string> {
    const found = (await this.inner.requester?.(options)) ?? 'none';
    return typeof found === 'string' ? found : this.#behind(found);
  }

  async release(): Promise<void> {
    await this.inner.release?.();
  }

  /** Returns a queue pair of the peer whose port is behind the path. */
  #behind<End extends { readonly port: PacketPort }>(end: End): End {
    const port = this.#port(end.port);
    const get = (of: End, name: string | symbol) => {
      const value: unknown = Reflect.get(of, name, of);
      return typeof value === 'function' ? value.bind(of) : value;
    };
    return new Proxy(end, { get: (of, name) => (name === 'port' ? port : get(of, name)) });
  }

  #port(inner: PacketPort): PacketPort {
    const { change } = this.options;
    const arrived: Arrival[] = [];
    return {
      flow: inner.flow,
      mtu: inner.mtu,
      now: () => inner.now(),
      send: (frame) => (this.#isLost(0, frame) ? inner.now() : inner.send(frame)),
      receive: async (until) => {
        for (;;) {
          const next = arrived.shift();
          if (next !== undefined) return next;
          const arrival = await inner.receive(until);
          if (arrival === undefined) return undefined;
          if (this.#isLost(1, arrival.frame)) continue;
          const frames = change?.(arrival.frame, this.#count++) ?? [arrival.frame];
          arrived.push(...frames.map((frame) => ({ ...arrival, frame })));
        }
      },
    };
  }

  #isLost(direction: 0 | 1, { length }: Uint8Array): boolean {
    const { longest } = this.options;
    if (longest !== undefined && length > longest[direction]) return true;
    return this.#random.fraction() < this.#loss[direction];
  }
}
