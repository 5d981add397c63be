/**
 * A device in the peer's namespace (netns.ts), with memory that its peers may write and read. It ends with its standard
 * input. Its argument is the options of openDevice as JSON. It prints "ready" and then one line for each line of input:
 * for [endpoint, path MTU] of a queue pair it connects, and prints its own endpoint and memory; for "counters", its
 * counters.
 */
import { createInterface } from 'node:readline';
import { type Endpoint, openDevice } from '../../src/index.js';
import { ALL } from '../verbs/pair.js';

const device = await openDevice({ keepAlive: true, ...JSON.parse(process.argv[2] as string) });
const pd = await device.allocPd();
const cq = await device.createCq();
const mr = await pd.regMr(2 ** 20, { access: ALL });

async function connected(remote: Endpoint, pathMtu: number) {
  const qp = await pd.createQp({ sendCq: cq });
  const endpoint = qp.endpoint(remote.gid);
  await qp.connect(remote, { access: ALL, pathMtu, timeout: 18, adaptiveRetransmission: false });
  return { endpoint, memory: mr.remote };
}

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [remote, pathMtu] = line === 'counters' ? [] : JSON.parse(line);
  console.log(JSON.stringify(remote ? await connected(remote, pathMtu) : device.counters()));
}
process.exit(0);
