#!/usr/bin/env node
/**
 * Trains a small neural network on several hosts: each rank computes the gradient on its share of the examples, and an
 * all-reduce sums the gradients. The ranks end with the same network, bit by bit, which knows whether a point lies in a
 * ring. Everything is plain JavaScript.
 */
import { createHash } from 'node:crypto';
import { openCommunicator } from 'wasm-roce/collective';
import { COMMON_HELP, demoDevices, deviceFor, run, UsageError } from './options.js';

const HELP = `usage: training.js RANK SIZE HOST [options]   RANK is 0 to SIZE - 1, HOST the address of rank 0
       training.js --demo                     four ranks within this process
${COMMON_HELP.replace('7471', '29500')}  --epochs N             times that each example is seen; default 200
`;

const INPUTS = 2;
const HIDDEN = 24;
/** Weights and biases of both layers, one after the other; the last element of a gradient is the loss. */
const PARAMETERS = HIDDEN * (INPUTS + 1) + HIDDEN + 1;
const EXAMPLES = 2000;
const RATE = 0.5;
const MOMENTUM = 0.9;

/** Returns numbers from 0 to 1 that are the same on each host. @param {number} seed */
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Returns the share of the examples of a rank: x, y, and 1 where the point lies in the ring. */
function examplesOf({ rank, size }) {
  const random = randomNumbers(1);
  const all = Array.from({ length: EXAMPLES }, () => [random() * 4 - 2, random() * 4 - 2]);
  const isInside = (x, y) => Math.hypot(x, y) > 0.7 && Math.hypot(x, y) < 1.6;
  return all.filter((_, i) => i % size === rank).map(([x, y]) => [x, y, Number(isInside(x, y))]);
}

/** Computes what the network says of a point. @param {Float64Array} hidden gets the values of the hidden layer */
function predict(weights, x, y, hidden) {
  let sum = weights[PARAMETERS - 1];
  for (let unit = 0; unit < HIDDEN; unit++) {
    const at = unit * (INPUTS + 1);
    hidden[unit] = Math.tanh(weights[at] * x + weights[at + 1] * y + weights[at + 2]);
    sum += weights[HIDDEN * (INPUTS + 1) + unit] * hidden[unit];
  }
  return 1 / (1 + Math.exp(-sum));
}

/** Adds up the gradient of the cross entropy, and the cross entropy itself, over examples. */
function addGradient(weights, examples, gradient) {
  const hidden = new Float64Array(HIDDEN);
  gradient.fill(0);
  for (const [x, y, label] of examples) {
    const said = predict(weights, x, y, hidden);
    const error = said - label;
    gradient[PARAMETERS] -= Math.log(Math.max(label === 1 ? said : 1 - said, 1e-12));
    gradient[PARAMETERS - 1] += error;
    for (let unit = 0; unit < HIDDEN; unit++) {
      const outer = HIDDEN * (INPUTS + 1) + unit;
      const slope = error * weights[outer] * (1 - hidden[unit] ** 2);
      gradient[outer] += error * hidden[unit];
      gradient[unit * (INPUTS + 1)] += slope * x;
      gradient[unit * (INPUTS + 1) + 1] += slope * y;
      gradient[unit * (INPUTS + 1) + 2] += slope;
    }
  }
}

/** @param {import('wasm-roce/collective').Communicator} communicator */
async function train(communicator, epochs) {
  const { rank } = communicator;
  const examples = examplesOf(communicator);
  const weights = new Float64Array(PARAMETERS);
  const random = randomNumbers(2 + rank);
  // each rank begins elsewhere, and takes the weights of rank 0
  for (let i = 0; i < PARAMETERS; i++) weights[i] = (random() - 0.5) * 2;
  await communicator.broadcast(weights);
  // in registered memory, so that nothing is copied
  const gradient = await communicator.allocate('Float64Array', PARAMETERS + 1);
  const speed = new Float64Array(PARAMETERS);
  for (let epoch = 0; epoch < epochs; epoch++) {
    addGradient(weights, examples, gradient);
    await communicator.allReduce(gradient);
    for (let i = 0; i < PARAMETERS; i++) {
      speed[i] = MOMENTUM * speed[i] - (RATE * gradient[i]) / EXAMPLES;
      weights[i] += speed[i];
    }
    if (rank === 0 && (epoch + 1) % 50 === 0)
      console.log(`epoch ${epoch + 1}: loss ${(gradient[PARAMETERS] / EXAMPLES).toFixed(4)}`);
  }
  const hidden = new Float64Array(HIDDEN);
  const right = examples.filter(([x, y, label]) => Math.round(predict(weights, x, y, hidden)) === label).length;
  const total = Int32Array.of(right);
  await communicator.allReduce(total);
  const sha256 = createHash('sha256').update(new Uint8Array(weights.buffer)).digest('hex');
  return { rank, accuracy: total[0] / EXAMPLES, sha256 };
}

async function runRank(options, epochs) {
  const communicator = await openCommunicator(options);
  try {
    console.log(JSON.stringify(await train(communicator, epochs)));
  } finally {
    await communicator.close();
  }
}

async function main([rank, size, host], values) {
  if (host === undefined) throw new UsageError('name a rank, the number of ranks, and the address of rank 0');
  const device = await deviceFor(values, Number(rank) === 0 ? undefined : host);
  try {
    const options = { rank: Number(rank), size: Number(size), host, port: Number(values.port), device };
    await runRank(options, Number(values.epochs));
  } finally {
    await device.close();
  }
}

async function demo(values) {
  const { devices, host } = await demoDevices(4);
  const ranks = devices.map((device, rank) => ({ rank, size: devices.length, host, device }));
  await Promise.all(ranks.map((options) => runRank(options, Number(values.epochs))));
  for (const device of devices) await device.close();
}

const options = { epochs: { type: 'string', default: '200' }, port: { type: 'string', default: '29500' } };
await run({ help: HELP, options, main, demo });
