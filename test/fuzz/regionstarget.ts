/**
 * Any numbers for the accesses of the addon's table of regions, as from a card that has lost its mind. The card's
 * memory and the regions are ArrayBuffers of the C heap that end with them, so that the address sanitizer sees an
 * access behind one. The table in JavaScript says what should come of each access.
 */
import { NativeRegions, OwnRegions, type Regions } from '../../src/device/regions.js';
import { native } from '../../src/native.js';
import type { Random } from '../kit/random.js';
import type { FuzzTarget, Session } from './fuzzer.js';

const CARD_BYTES = 4096;
const MAX_REGIONS = 6;
/** An input: the action, the region or the length, then three numbers of 32 bits. */
const INPUT_BYTES = 16;
enum Action {
  FETCH,
  PLACE,
  ATOMIC,
  ADD,
  REMOVE,
  SET_WRITABLE,
  MOVE,
  READ,
  COUNT,
}

/** A table with its memories. */
class Side {
  readonly card = new Uint8Array(new ArrayBuffer(CARD_BYTES));
  readonly memories: Uint8Array[] = [];
  /** Numbers of the regions in the order of `memories`; those that were removed stay. */
  readonly numbers: number[] = [];
  readonly table: Regions;

  constructor(open: (card: Uint8Array) => Regions) {
    this.card.forEach((_, i) => {
      this.card[i] = i * 7;
    });
    this.table = open(this.card);
  }

  /** @returns the result for the caller */
  act([action, which, first, second, third]: readonly [Action, number, number, number, number]): unknown {
    const { table, memories, numbers } = this;
    // a number that no region has, now and then
    const region = numbers[which % (numbers.length + 1)] ?? 2 ** 24 + which;
    const { fetch, place, atomic } = table.imports;
    switch (action) {
      case Action.FETCH:
        return fetch(region | 0, first | 0, second | 0, third | 0);
      case Action.PLACE:
        return place(region | 0, first | 0, second | 0, third | 0);
      case Action.ATOMIC:
        // operands of the card are aligned
        return atomic(region | 0, first | 0, second % 4, third & ~7);
      case Action.ADD: {
        if (memories.length === MAX_REGIONS) return undefined;
        const memory = new Uint8Array(new ArrayBuffer(1 + (which % 300)));
        memories.push(memory);
        numbers.push(table.add(memory, (first & 1) !== 0));
        return undefined;
      }
      case Action.REMOVE:
        return table.remove(region);
      case Action.SET_WRITABLE:
        return table.setWritable(region, (first & 1) !== 0);
      case Action.MOVE: {
        const memory = new Uint8Array(new ArrayBuffer(1 + (first % 300)));
        const index = numbers.indexOf(region);
        if (index >= 0) memories[index] = memory;
        return table.move(region, memory);
      }
      default: {
        const into = new Uint8Array(third % 400);
        return table.read((region >>> 0) * 2 ** 32 + first, into) ? [...into] : undefined;
      }
    }
  }
}

class RegionsSession implements Session {
  readonly #sides = [new Side((card) => new NativeRegions(native(), card)), new Side((card) => new OwnRegions(card))];

  next(random: Random): Uint8Array {
    const input = Buffer.alloc(INPUT_BYTES);
    input[0] = random.chance(0.1) ? random.below(Action.COUNT) : random.below(Action.ADD);
    input[1] = random.below(256);
    for (const at of [4, 8, 12]) input.writeUInt32BE(number(random), at);
    return input;
  }

  feed(inputs: readonly Uint8Array[]): void {
    for (const input of inputs) {
      if (input.length < INPUT_BYTES) continue;
      const view = new DataView(input.buffer, input.byteOffset, INPUT_BYTES);
      const numbers = [4, 8, 12].map((at) => view.getUint32(at)) as [number, number, number];
      const action = [(input[0] as number) % Action.COUNT, input[1] as number, ...numbers] as const;
      const [found, expected] = this.#sides.map((side) => side.act(action));
      if (JSON.stringify(found) !== JSON.stringify(expected))
        throw new Error(`${action.join(' ')}: the addon says ${found}, JavaScript says ${expected}`);
      // the tables give out numbers in another order
      if (action[0] === Action.REMOVE) this.#forget();
    }
    this.#compare();
  }

  check(): void {
    this.#compare();
  }

  /** Begins again after a removal, with whole tables. */
  #forget(): void {
    for (const { table, numbers, memories } of this.#sides) {
      for (const region of numbers.splice(0)) table.remove(region);
      memories.splice(0);
    }
  }

  #compare(): void {
    const [found, expected] = this.#sides.map(({ card, memories }) => Buffer.concat([card, ...memories])) as Buffer[];
    if (!found?.equals(expected as Buffer)) throw new Error('the memories of the two tables differ');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#forget();
  }
}

/** A number that is near an edge more often than not. */
function number(random: Random): number {
  const near = random.pick([0, 8, 32, 64, 256, 300, CARD_BYTES, 2 ** 31, 2 ** 32 - 1]);
  return random.chance(0.3) ? random.below(CARD_BYTES) : (near + random.below(17) - 8) >>> 0;
}

export const regionsTarget: FuzzTarget = {
  name: 'regions',
  about: "any numbers for the accesses of the addon's table of regions, compared with the table in JavaScript",
  batch: 64,
  batches: 200,
  async open() {
    return new RegionsSession();
  },
};
