/**
 * Two cores over a network with faults, from a seed.
 *   WASM_ROCE_SEED=n   another seed     WASM_ROCE_SCALE=x  x times as many runs
 */
import { expect, describe as group, test } from 'vitest';
import { MAX_OF_PEER } from '../../src/cm/core/listeners.js';
import { Random } from '../kit/random.js';
import { type NetworkFaults, NetworkSimulation, type ProgramBehaviour } from './networksimulation.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 3);
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const RUNS = Math.ceil(40 * SCALE);

const NO_FAULTS: NetworkFaults = { drop: 0, duplicate: 0, delay: 1 };
const NO_INTERFERENCE: ProgramBehaviour = { reject: 0, close: 0, disconnect: 0, maxDelay: 0 };

function randomFaults(random: Random): NetworkFaults {
  const sometimes0 = (most: number) => (random.chance(0.3) ? 0 : random.fraction() * most);
  return { drop: sometimes0(0.3), duplicate: sometimes0(0.3), delay: Math.floor(sometimes0(250)) };
}

function randomBehaviour(random: Random): ProgramBehaviour {
  const sometimes0 = (most: number) => (random.chance(0.5) ? 0 : random.fraction() * most);
  return {
    reject: sometimes0(0.3),
    close: sometimes0(0.3),
    disconnect: sometimes0(1),
    maxDelay: random.pick([0, 10, 1000, 20_000]),
  };
}

/** Closes the remaining connections, and checks that none is left. */
function finish(network: NetworkSimulation): void {
  for (const host of network.hosts) for (const id of host.open) host.close(id);
  network.settle();
  expect(network.hosts.map(({ core }) => core.size)).toEqual([0, 0]);
  for (const { core } of network.hosts) {
    const wrong = Object.keys(core.counters()).filter((name) => name.includes('drop'));
    expect(wrong).toEqual([]);
  }
}

group(`random networks and programs, seed ${SEED}`, () => {
  const seeds = new Random(SEED);
  const runs = Array.from({ length: RUNS }, () => seeds.u32());

  test.each(runs)('%d: both ends agree, and no connection is left half-open', (seed) => {
    const random = new Random(seed);
    const network = new NetworkSimulation(random.u32(), randomFaults(random), randomBehaviour(random));
    for (let i = 0; i < 60; i++) {
      const host = random.pick(network.hosts);
      network.after(random.below(30_000), () => host.connect());
    }
    network.settle();
    expect(network.halfOpen()).toEqual([]);
    // every attempt that was not closed has an outcome
    for (const host of network.hosts)
      for (const [id, outcome] of host.outcomes)
        if (outcome === 'none') expect([id, host.open.has(Number(id.split('/')[1]))]).toEqual([id, false]);
    finish(network);
  });

  test.each(runs.slice(0, RUNS / 2))('%d: one end is restarted during the run', (seed) => {
    const random = new Random(seed);
    const network = new NetworkSimulation(random.u32(), randomFaults(random), randomBehaviour(random));
    for (let i = 0; i < 60; i++) {
      const host = random.pick(network.hosts);
      network.after(random.below(30_000), () => host.connect());
    }
    network.after(random.below(40_000), () => random.pick(network.hosts).start());
    network.settle();
    // An application notices a half-open connection when its data is not acknowledged.
    for (const host of network.hosts)
      for (const id of host.open) if (host.core.stateOf(id) === 'ESTABLISHED') host.core.disconnect(id, network.now);
    network.settle();
    expect(network.halfOpen()).toEqual([]);
    finish(network);
  });
});

group('a thousand connects at once', () => {
  test.each([
    ['over a fair network', NO_FAULTS],
    ['over a bad one', { drop: 0.1, duplicate: 0.1, delay: 200 }],
  ])('%s', (_, faults) => {
    connectAll(1000, faults);
  });

  test('as many as one peer may have unestablished: no message is sent twice', () => {
    expect(connectAll(MAX_OF_PEER, NO_FAULTS).packets).toBe(MAX_OF_PEER * 5);
  });

  function connectAll(count: number, faults: NetworkFaults): NetworkSimulation {
    const network = new NetworkSimulation(SEED, faults, { ...NO_INTERFERENCE, maxDelay: 100 });
    const [client, server] = network.hosts;
    if (client === undefined || server === undefined) throw new Error('no hosts');
    for (let i = 0; i < count; i++) client.connect();
    network.settle();
    const states = (host: typeof client) => [...host.open].map((id) => host.core.stateOf(id));
    expect(states(client)).toEqual(Array(count).fill('ESTABLISHED'));
    expect(states(server)).toEqual(Array(count).fill('ESTABLISHED'));
    expect(new Set(client.outcomes.values())).toEqual(new Set(['CONNECT_RESPONSE']));
    for (const id of server.open) server.core.disconnect(id, network.now);
    network.settle();
    expect(network.hosts.map(({ core }) => core.size)).toEqual([0, 0]);
    return network;
  }

  test('half of them in each direction', () => {
    const network = new NetworkSimulation(SEED, NO_FAULTS, NO_INTERFERENCE);
    for (let i = 0; i < 1000; i++) network.hosts[i & 1]?.connect();
    network.settle();
    expect(network.hosts.map(({ core }) => core.size)).toEqual([1000, 1000]);
    expect(network.halfOpen()).toEqual([]);
    finish(network);
  });
});
