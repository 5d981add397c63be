// A thread that takes turns as the card's thread does. Each turn adds one to a word in two steps.
import { parentPort, workerData } from 'node:worker_threads';
import { register } from 'tsx/esm/api';

register();
const { TurnLock } = await import('../../src/device/turnlock.ts');

const { shared, sum } = workerData;
const turnLock = new TurnLock(shared);
const words = new Int32Array(sum);
let turns = 0;
parentPort.postMessage('running');
while (!turnLock.isStopping) {
  turnLock.beginTurn();
  const before = words[0];
  for (let i = 0; i < 50; i++) Atomics.load(words, 1);
  words[0] = before + 1;
  turns++;
  turnLock.endTurn();
}
turnLock.markStopped();
parentPort.postMessage(turns);
