// Communicators in one process: what each call gives each rank.
import { describe, expect, test, vi } from 'vitest';
import type { Communicator, ElementName, NumberArray } from '../../../src/collective.js';
import { Mr } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { join, openDevices, openRanks, optionsOf, ROOT_HOST } from './ranks.js';

const ARRAYS = { Float32Array, Float64Array, Int32Array, BigInt64Array };
const TYPES = Object.keys(ARRAYS) as ElementName[];
/** Lengths that are sent at once, in one slice or in several, and leave parts of different lengths. */
const LENGTHS = [1, 3, 1000, 60_007, 400_009];

/** Returns an array whose elements are small integers, which every type can represent. */
function filled(type: ElementName, length: number, random: Random): NumberArray {
  const array = new ARRAYS[type](length);
  for (let i = 0; i < length; i++)
    array[i] = (type === 'BigInt64Array' ? BigInt(random.below(100)) : random.below(100)) as never;
  return array;
}

function combined(arrays: readonly NumberArray[]): NumberArray {
  const [first, ...others] = arrays as [NumberArray, ...NumberArray[]];
  const sum = first.slice();
  for (const other of others) for (let i = 0; i < sum.length; i++) (sum[i] as number) += other[i] as number;
  return sum;
}

/** Compares long arrays: `toEqual` would take seconds. */
function expectSame(array: NumberArray | undefined, expected: NumberArray | undefined): void {
  const [found, wanted] = [array, expected].map((each) => Buffer.from(each?.slice().buffer as ArrayBuffer));
  if (!found?.equals(wanted as Buffer)) expect(array).toEqual(expected);
}

/** Copies an array into one of `allocate`. */
async function registered(rank: Communicator, array: NumberArray): Promise<NumberArray> {
  const copy = await rank.allocate(array.constructor.name as 'Float32Array', array.length);
  copy.set(array as never);
  return copy;
}

const each = <T, R>(items: readonly T[], call: (item: T, index: number) => Promise<R>): Promise<R[]> =>
  Promise.all(items.map(call));

describe('long arrays of the program', () => {
  test('are sent and received where they are, and belong to the program again afterwards', async () => {
    const devices = await openDevices(3);
    const ranks = await Promise.all(devices.map((device, rank) => join(optionsOf(rank, 3, device))));
    const copies = [vi.spyOn(Mr.prototype, 'copyIn'), vi.spyOn(Mr.prototype, 'copyTo')];
    const arrays = ranks.map((_, rank) => new Float32Array(2 ** 18).fill(rank));
    await each(ranks, (rank, i) => rank.broadcast(arrays[i] as Float32Array, { root: 1 }));
    for (const array of arrays) expectSame(array, arrays[1]);
    const parts = ranks.map((rank, i) =>
      new Float32Array(rank.partOf(2 ** 18).end - rank.partOf(2 ** 18).start).fill(i),
    );
    const into = ranks.map(() => new Float32Array(2 ** 18));
    await each(ranks, (rank, i) => rank.allGather(parts[i] as Float32Array, { into: into[i] as Float32Array }));
    for (const array of into) expectSame(array, into[0]);
    expect([into[0]?.[0], into[0]?.at(-1)]).toEqual([0, 2]);
    const long = copies.flatMap(({ mock }) => mock.calls).filter(([bytes]) => bytes.length >= 32_768);
    for (const copy of copies) copy.mockRestore();
    expect(long.length).toBe(0);
    for (const device of devices) {
      const pd = await device.allocPd();
      // no call has had more regions at once
      expect((await pd.regMr(new Uint8Array(1))).addr).toBeLessThanOrEqual(2 * 2 ** 32);
    }
  });

  test('are copied if they cannot be registered', async () => {
    const ranks = await openRanks(2);
    const arrays = ranks.map((_, rank) => {
      const resizable = Reflect.construct(ArrayBuffer, [2 ** 18, { maxByteLength: 2 ** 19 }]) as ArrayBuffer;
      return new Float32Array(resizable, 0, 2 ** 16).fill(rank + 1);
    });
    await each(ranks, (rank, i) => rank.allReduce(arrays[i] as Float32Array));
    for (const array of arrays) expect([array[0], array.at(-1)]).toEqual([3, 3]);
  });
});

describe.each([2, 3, 4, 6])('%i ranks', (size) => {
  test.each(TYPES)('combine and exchange %s', async (type) => {
    const ranks = await openRanks(size);
    const random = new Random(size);
    for (const length of LENGTHS)
      for (const isRegistered of [false, true]) {
        const given = ranks.map(() => filled(type, length, random));
        const own = isRegistered ? await each(ranks, (rank, i) => registered(rank, given[i] as NumberArray)) : given;
        const sum = combined(given);
        const before = given.map((array) => array.slice());
        const root = random.below(size);

        const parts = await each(ranks, (rank, i) => rank.reduceScatter(own[i] as NumberArray));
        for (const [rank, part] of parts.entries()) {
          const { start, end } = (ranks[rank] as Communicator).partOf(length);
          expectSame(part, sum.slice(start, end));
          expectSame(own[rank], before[rank]);
        }

        const into = await each(ranks, async (rank) => {
          const array = new ARRAYS[type](length);
          return isRegistered ? registered(rank, array) : array;
        });
        await each(ranks, (rank, i) => rank.allGather(parts[i] as NumberArray, { into: into[i] as NumberArray }));
        for (const array of into) expectSame(array, sum);

        await each(ranks, (rank, i) => rank.broadcast(own[i] as NumberArray, { root }));
        for (const array of own) expectSame(array, before[root]);

        for (const [i, array] of own.entries()) array.set(before[i] as never);
        await each(ranks, (rank, i) => rank.allReduce(own[i] as NumberArray));
        for (const array of own) expectSame(array, sum);
        if (isRegistered)
          await each(ranks, async (rank, i) => {
            await rank.free(own[i] as NumberArray);
            await rank.free(into[i] as NumberArray);
          });
      }
  });

  test.each(['ring', 'tree'] as const)('combine and broadcast by %s, whatever the length', async (algorithm) => {
    const ranks = await openRanks(size);
    const random = new Random(size);
    for (const length of LENGTHS) {
      const own = ranks.map(() => filled('Int32Array', length, random));
      const [sum, root] = [combined(own), random.below(size)];
      await each(ranks, (rank, i) => rank.allReduce(own[i] as NumberArray, { algorithm }));
      for (const array of own) expectSame(array, sum);
      own[root]?.fill(5 as never);
      await each(ranks, (rank, i) => rank.broadcast(own[i] as NumberArray, { root, algorithm }));
      for (const array of own) expectSame(array, own[root]);
    }
  });

  test('wait in barrier until all have called it', async () => {
    const ranks = await openRanks(size);
    const passed: number[] = [];
    const waiting = ranks.slice(1).map((rank) => rank.barrier().then(() => passed.push(rank.rank)));
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect(passed).toEqual([]);
    await ranks[0]?.barrier();
    await Promise.all(waiting);
    expect(passed.length).toBe(size - 1);
  });
});

test.each(['prod', 'min', 'max'] as const)('%s', async (op) => {
  const ranks = await openRanks(3);
  const arrays = [
    [2, 7],
    [3, -1],
    [4, 5],
  ].map((values) => Float64Array.from(values));
  await each(ranks, (rank, i) => rank.allReduce(arrays[i] as NumberArray, { op }));
  const expected = { prod: [24, -35], min: [2, -1], max: [4, 7] }[op];
  for (const array of arrays) expect([...array]).toEqual(expected);
});

test('sums of floating-point numbers are the same at all ranks, bit by bit', async () => {
  const ranks = await openRanks(5);
  const random = new Random(1);
  const arrays = ranks.map(() =>
    Float32Array.from({ length: 20_011 }, () => random.fraction() * 10 ** random.below(20)),
  );
  await each(ranks, (rank, i) => rank.allReduce(arrays[i] as NumberArray));
  for (const array of arrays) expectSame(array, arrays[0]);
});

test('calls that overlap are executed in order, also when a rank is far ahead', async () => {
  const ranks = await openRanks(3);
  const counts = ranks.map(() => new Int32Array(2000).fill(1));
  const calls = ranks.map(async (rank, i) => {
    // rank 0 makes all its calls at once, and the last rank each after the one before
    const all: Promise<void>[] = [];
    for (let call = 0; call < 100; call++) {
      const done = rank.broadcast(counts[i] as Int32Array).then(() => void counts[i]?.fill(call, 0, 1));
      if (i === 2) await done;
      all.push(done);
    }
    await Promise.all(all);
    await rank.allReduce(counts[i] as Int32Array);
  });
  await Promise.all(calls);
  for (const count of counts) expect([...count.slice(0, 3)]).toEqual([297, 3, 3]);
});

test('a communicator of one rank has all calls', async () => {
  const [alone] = (await openRanks(1)) as [Communicator];
  const array = Float32Array.of(1, 2, 3);
  await alone.allReduce(array);
  await alone.broadcast(array);
  await alone.barrier();
  expect(await alone.reduceScatter(array)).toEqual(array);
  expect(await alone.allGather(array)).toEqual(array);
});

test('a part of a registered array is an array', async () => {
  const ranks = await openRanks(2);
  const arrays = await each(ranks, async (rank) => {
    const array = await rank.allocate('Float32Array', 100_000);
    return array.fill(rank.rank + 1);
  });
  await each(ranks, (rank, i) => rank.allReduce((arrays[i] as Float32Array).subarray(10, 90_000)));
  for (const [i, array] of arrays.entries()) {
    expect(array.subarray(10, 90_000).every((value) => value === 3)).toBe(true);
    expect([array[9], array[90_000]]).toEqual([i + 1, i + 1]);
  }
});

test.each([1, 2, 3])('lost, repeated and reordered frames change no result (seed %i)', async (seed) => {
  const fault = { seed, both: { drop: 0.02, duplicate: 0.02, reorder: 0.02 } };
  const ranks = await openRanks(3, { timeout: 60_000 }, { fault });
  const random = new Random(seed);
  for (const length of [10, 3000, 100_000]) {
    const arrays = ranks.map(() => filled('Float64Array', length, random));
    const sum = combined(arrays);
    await each(ranks, (rank, i) => rank.allReduce(arrays[i] as NumberArray));
    for (const array of arrays) expectSame(array, sum);
  }
});

test('endpoints of all ranks may replace the connection to rank 0', async () => {
  const devices = await openDevices(4);
  const endpoints = devices.map((_, rank) => ({ host: `10.0.0.${rank + 1}`, port: 7000 + rank }));
  const ranks = await each(devices, (device, rank) => join({ rank, size: 4, device, endpoints, reduceThread: 'own' }));
  const arrays = ranks.map(() => new Float32Array(50_000).fill(1));
  await each(ranks, (rank, i) => rank.allReduce(arrays[i] as NumberArray));
  for (const array of arrays) expect(array.every((value) => value === 4)).toBe(true);
});

test('ranks may start in any order, also long before rank 0', async () => {
  const devices = await openDevices(4);
  const joining: Promise<Communicator>[] = [];
  for (const rank of [2, 3, 1, 0]) {
    joining.push(join(optionsOf(rank, 4, devices[rank] as never)));
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
  const ranks = await Promise.all(joining);
  await each(ranks, (rank) => rank.barrier());
});

test('two communicators share devices', async () => {
  const devices = await openDevices(2);
  const open = (group: string, port: number) =>
    each(devices, (device, rank) => join({ ...optionsOf(rank, 2, device), group, port }));
  const [a, b] = await Promise.all([open('a', 7000), open('b', 7001)]);
  await each([...a, ...b], (rank) => rank.barrier());
});

test('close leaves nothing open on the device', async () => {
  const devices = await openDevices(2);
  const ranks = await each(devices, (device, rank) => join(optionsOf(rank, 2, device)));
  await each(ranks, async (rank) => {
    await rank.allReduce(await rank.allocate('Float32Array', 1000));
    await rank.close();
  });
  await expect(ranks[0]?.barrier()).rejects.toMatchObject({ code: 'ECANCELED' });
  for (const device of devices) await eventually(() => device.close());
});

test.each<[string, (rank: Communicator) => Promise<unknown>, RegExp]>([
  ['a plain array', (rank) => rank.allReduce([1] as never), /array is object, must be one of Float32Array/],
  ['bytes', (rank) => rank.allReduce(new Uint8Array(4) as never), /array is Uint8Array, must be one of/],
  [
    'an operation',
    (rank) => rank.allReduce(new Int32Array(1), { op: 'mean' as never }),
    /op is 'mean', must be 'sum', 'prod', 'min' or 'max'/,
  ],
  [
    'an algorithm',
    (rank) => rank.allReduce(new Int32Array(1), { algorithm: 'star' as never }),
    /algorithm is 'star', must be 'ring' or 'tree'/,
  ],
  ['an option', (rank) => rank.broadcast(new Int32Array(1), { rot: 1 } as never), /broadcast has no option 'rot'/],
  ['a root', (rank) => rank.broadcast(new Int32Array(1), { root: 2 }), /root is 2, must be from 0 to 1/],
  [
    'the type of a result',
    (rank) => rank.reduceScatter<Int32Array | Float32Array>(new Int32Array(2), { into: new Float32Array(1) }),
    /into is Float32Array, must be Int32Array/,
  ],
  [
    'the length of a part',
    (rank) => rank.allGather(new Int32Array(2), { into: new Int32Array(2) }),
    /part.length is 2, must be 1, the part of rank 0/,
  ],
  ['an array to free', (rank) => rank.free(new Int32Array(1)), /must be one of allocate/],
])('%s that is wrong is refused, and the next call works', async (_, call, message) => {
  const ranks = await openRanks(2);
  await expect(call(ranks[0] as Communicator)).rejects.toThrow(message);
  await each(ranks, (rank) => rank.barrier());
});

test.each([
  [{ rank: 2 }, /rank is 2, must be from 0 to 1/],
  [{ size: 0 }, /size is 0, must be from 1 to 1024/],
  [{ host: undefined }, /host is undefined, must be the name or address of rank 0/],
  [{ endpoints: [] }, /host is '10.0.0.1', must be omitted with endpoints/],
  [
    { host: undefined, endpoints: [{ host: ROOT_HOST, port: 1 }] },
    /endpoints.length is 1, must be 2, one for each rank/,
  ],
  [{ sise: 2 }, /openCommunicator has no option 'sise', must be one of/],
  [{ port: 0 }, /port is 0, must be from 1 to 65535/],
  [{ timeout: 1 }, /timeout is 1, must be from 500 to 600000/],
  [{ reduceThread: 'both' }, /reduceThread is 'both', must be 'worker' or 'own'/],
])('the options %j are refused', async (change, message) => {
  const [device] = await openDevices(1);
  await expect(join({ ...optionsOf(0, 2, device as never), ...(change as object) })).rejects.toThrow(message);
});
