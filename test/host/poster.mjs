// A thread of its own that posts to a queue pair and polls, through an instance of its own on the card's memory, while
// another thread takes the card's turns. Answers how many completions came out of order, and how often a queue was
// full.
import { parentPort, workerData } from 'node:worker_threads';
import { instantiate } from '../../build/card.js';

const { module, memory, qp, cq, count, start } = workerData;
// it posts, and takes no turns: it calls no import
const [fetch, place, atomic] = Array(3).fill(() => 0);
const x = await instantiate(module, { env: { memory, fetch, place, atomic } });
const u32 = new Uint32Array(memory.buffer);
const f64 = new Float64Array(memory.buffer);
const go = new Int32Array(start);
let posted = 0;
let received = 0;
let done = 0;
let full = 0;
let wrong = 0;

function post() {
  if (!x.sqBegin(qp, posted, x.WrOpcode.SEND, 2)) {
    full++;
    return;
  }
  u32[x.sqInline(qp, 4) >>> 2] = posted;
  if (x.sqCommit(qp) !== 0) throw new Error(`request ${posted} was refused`);
  posted++;
}

function receive() {
  if (!x.rqBegin(qp, received)) return;
  if (x.rqCommit(qp) !== 0) throw new Error(`receive ${received} was refused`);
  received++;
}

parentPort.postMessage('ready');
Atomics.wait(go, 0, 0);
let idle = 0;
while (done < count) {
  const before = posted + done;
  if (posted < count) {
    post();
    receive();
  }
  for (let at = x.cqPeek(cq); at !== 0; at = x.cqPeek(cq)) {
    if (f64[(at + x.CqeOffset.WR_ID) >>> 3] !== done++ || u32[(at + x.CqeOffset.STATUS) >>> 2] !== 0) wrong++;
    x.cqPop(cq);
  }
  idle = posted + done === before ? idle + 1 : 0;
  // the other thread may be waiting for this processor
  if (idle === 10_000) {
    idle = 0;
    Atomics.wait(go, 0, 1, 1);
  }
}
parentPort.postMessage({ posted, received, done, full, wrong });
