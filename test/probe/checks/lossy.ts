/** A target whose path loses packets of either direction, by a seed. */
import type {
  Requester,
  RequesterOptions,
  Responder,
  ResponderOptions,
  Target,
} from '../../../src/probe/checks/check.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';
import { Random } from '../../kit/random.js';

/** A path to the queue pairs of another target, but for its connection manager. */
export class LossyTarget implements Target {
  readonly #random: Random;

  constructor(
    readonly inner: Target,
    /** Probability of a loss, or that of a packet to the peer and of one from it. */
    readonly loss: number | readonly [forth: number, back: number],
    seed: number,
  ) {
    this.#random = new Random(seed);
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
    return {
      flow: inner.flow,
      mtu: inner.mtu,
      now: () => inner.now(),
      send: (frame) => (this.#isLost(0) ? inner.now() : inner.send(frame)),
      receive: async (until) => {
        for (;;) {
          const arrival: Arrival | undefined = await inner.receive(until);
          if (arrival === undefined || !this.#isLost(1)) return arrival;
        }
      },
    };
  }

  #isLost(direction: 0 | 1): boolean {
    const { loss } = this;
    return this.#random.fraction() < (typeof loss === 'number' ? loss : loss[direction]);
  }
}
