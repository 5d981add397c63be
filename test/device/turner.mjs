// A thread that takes turns, as the card's thread does, each of which adds one to a word in two steps.
import { parentPort, workerData } from 'node:worker_threads';
import { Threads } from '../../dist/device/threads.js';

const { shared, sum } = workerData;
const threads = new Threads(shared);
const words = new Int32Array(sum);
let turns = 0;
parentPort.postMessage('running');
while (!threads.isToStop) {
  threads.enter();
  const before = words[0];
  for (let i = 0; i < 50; i++) Atomics.load(words, 1);
  words[0] = before + 1;
  turns++;
  threads.leave();
}
threads.stopped();
parentPort.postMessage(turns);
