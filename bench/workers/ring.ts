/** An all-reduce in plain JavaScript: a ring over any transport that moves bytes to the right and from the left. */

export interface RingTransport {
  /** Listens for the rank to the left. */
  listen(port: number): Promise<void>;
  /** Connects to the rank to the right, and waits for the one to the left. */
  connect(port: number): Promise<void>;
  /** Resolves when more can be sent. */
  send(bytes: Uint8Array): Promise<void>;
  /** Fills all of `into`. */
  receive(into: Uint8Array): Promise<void>;
}

/** Bytes that have arrived from the left, for calls that wait for them. */
export class Incoming {
  readonly #parts: Uint8Array[] = [];
  #onData: () => void = () => {};

  put(part: Uint8Array): void {
    this.#parts.push(part);
    this.#onData();
  }

  async fill(into: Uint8Array): Promise<void> {
    for (let at = 0; at < into.length; ) {
      const part = this.#parts.shift();
      if (part === undefined) {
        await new Promise<void>((resolve) => {
          this.#onData = resolve;
        });
        continue;
      }
      const fits = part.subarray(0, into.length - at);
      into.set(fits, at);
      at += fits.length;
      if (fits.length < part.length) this.#parts.unshift(part.subarray(fits.length));
    }
  }
}

/** Sums the arrays of all ranks, which end up in all of them. */
export async function ringAllReduce(ring: RingTransport, rank: number, size: number, array: Float32Array) {
  const part = (of: number) => {
    const index = ((of % size) + size) % size;
    const [start, end] = [0, 1].map((next) => Math.floor(((index + next) * array.length) / size));
    return array.subarray(start, end);
  };
  const bytes = (elements: Float32Array) => new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
  const incoming = new Float32Array(Math.ceil(array.length / size));
  for (let step = 0; step < size - 1; step++) {
    const own = part(rank - step - 1);
    const other = incoming.subarray(0, own.length);
    await Promise.all([ring.send(bytes(part(rank - step))), ring.receive(bytes(other))]);
    for (let i = 0; i < own.length; i++) (own[i] as number) += other[i] as number;
  }
  for (let step = 0; step < size - 1; step++)
    await Promise.all([ring.send(bytes(part(rank + 1 - step))), ring.receive(bytes(part(rank - step)))]);
}
