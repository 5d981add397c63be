/**
 * Two cores over a bad network, from a seed.
 *   WASM_ROCE_SEED=n   another seed     WASM_ROCE_SCALE=x  x times as many runs
 */
import { expect, describe as group, test } from 'vitest';
import { Random } from '../kit/random.js';
import { type Habits, type Weather, World } from './world.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 3);
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const RUNS = Math.ceil(40 * SCALE);

const FAIR: Weather = { drop: 0, duplicate: 0, delay: 1 };
const FAITHFUL: Habits = { reject: 0, close: 0, disconnect: 0, thinking: 0 };

function drawWeather(random: Random): Weather {
  const often0 = (most: number) => (random.chance(0.3) ? 0 : random.fraction() * most);
  return { drop: often0(0.3), duplicate: often0(0.3), delay: Math.floor(often0(250)) };
}

function drawHabits(random: Random): Habits {
  const often0 = (most: number) => (random.chance(0.5) ? 0 : random.fraction() * most);
  return {
    reject: often0(0.3),
    close: often0(0.3),
    disconnect: often0(1),
    thinking: random.pick([0, 10, 1000, 20_000]),
  };
}

/** The ends of it all: whoever is left closes, and nothing remains. */
function finish(world: World): void {
  for (const host of world.hosts) for (const id of host.open) host.close(id);
  world.settle();
  expect(world.hosts.map(({ core }) => core.size)).toEqual([0, 0]);
  for (const { core } of world.hosts) {
    const wrong = Object.keys(core.counters()).filter((name) => name.includes('drop'));
    expect(wrong).toEqual([]);
  }
}

group(`bad networks and whimsical programs, seed ${SEED}`, () => {
  const seeds = new Random(SEED);
  const runs = Array.from({ length: RUNS }, () => seeds.u32());

  test.each(runs)('%d: both ends agree, and nothing is left half-open', (seed) => {
    const random = new Random(seed);
    const world = new World(random.u32(), drawWeather(random), drawHabits(random));
    for (let i = 0; i < 60; i++) {
      const host = random.pick(world.hosts);
      world.after(random.below(30_000), () => host.connect());
    }
    world.settle();
    expect(world.halfOpen()).toEqual([]);
    // whoever did not give up itself has learned what became of its attempt
    for (const host of world.hosts)
      for (const [id, outcome] of host.outcomes)
        if (outcome === 'none') expect([id, host.open.has(Number(id.split('/')[1]))]).toEqual([id, false]);
    finish(world);
  });

  test.each(runs.slice(0, RUNS / 2))('%d: one end starts anew in the midst of it', (seed) => {
    const random = new Random(seed);
    const world = new World(random.u32(), drawWeather(random), drawHabits(random));
    for (let i = 0; i < 60; i++) {
      const host = random.pick(world.hosts);
      world.after(random.below(30_000), () => host.connect());
    }
    world.after(random.below(40_000), () => random.pick(world.hosts).start());
    world.settle();
    // What is still half-open its program learns by its data, which nobody answers.
    for (const host of world.hosts)
      for (const id of host.open) if (host.core.stateOf(id) === 'ESTABLISHED') host.core.disconnect(id, world.now);
    world.settle();
    expect(world.halfOpen()).toEqual([]);
    finish(world);
  });
});

group('a thousand at once', () => {
  test.each([
    ['over a fair network', FAIR],
    ['over a bad one', { drop: 0.1, duplicate: 0.1, delay: 200 }],
  ])('%s', (_, weather) => {
    const world = new World(SEED, weather, { ...FAITHFUL, thinking: 100 });
    const [client, server] = world.hosts;
    if (client === undefined || server === undefined) throw new Error('no hosts');
    for (let i = 0; i < 1000; i++) client.connect();
    world.settle();
    const states = (host: typeof client) => [...host.open].map((id) => host.core.stateOf(id));
    expect(states(client)).toEqual(Array(1000).fill('ESTABLISHED'));
    expect(states(server)).toEqual(Array(1000).fill('ESTABLISHED'));
    expect(new Set(client.outcomes.values())).toEqual(new Set(['CONNECT_RESPONSE']));
    for (const id of server.open) server.core.disconnect(id, world.now);
    world.settle();
    expect(world.hosts.map(({ core }) => core.size)).toEqual([0, 0]);
    if (weather.drop === 0) expect(world.packets).toBe(1000 * 5);
  });

  test('half of them each way', () => {
    const world = new World(SEED, FAIR, FAITHFUL);
    for (let i = 0; i < 1000; i++) world.hosts[i & 1]?.connect();
    world.settle();
    expect(world.hosts.map(({ core }) => core.size)).toEqual([1000, 1000]);
    expect(world.halfOpen()).toEqual([]);
    finish(world);
  });
});
