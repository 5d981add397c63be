/**
 * A separate program: a device in worker mode whose main thread then blocks in a system call, reading a line from
 * standard input. It prints its endpoint first, and what it has received at the end. It waits for a message before, so
 * that frames wake its main thread, too.
 */
import { readSync } from 'node:fs';
import { type Endpoint, openDevice, throwIfFailed } from '../../src/index.js';
import { ALL, endOn } from './pair.js';

/** Reads a line, blocking the thread. */
function line(): string {
  const bytes = Buffer.alloc(1);
  let text = '';
  while (readSync(0, bytes, 0, 1, null) === 1 && bytes[0] !== 10) text += bytes.toString('latin1');
  return text;
}

const [address = '', receives = '0'] = process.argv.slice(2);
await using device = await openDevice({ mode: 'worker', link: 'udp', addresses: [address], memoryBytes: 2 ** 25 });
const { qp, cq, mr } = await endOn(device);
const { addr, rkey } = mr.remote;
mr.buffer.write('what stands here before');
console.log(JSON.stringify({ endpoint: qp.endpoint(), addr: Number(addr), rkey }));
await qp.connect(JSON.parse(line()) as Endpoint, { access: ALL });
qp.postRecv({ sgList: mr.sge(4096, 64) });
console.log('waits');
throwIfFailed(await cq.next());
for (let i = 0; i < Number(receives); i++) qp.postRecv({ wrId: i, sgList: mr.sge(4096 + 64 * i, 64) });
console.log('blocked');
line();
const texts: string[] = [];
const wcs = cq.createWcs(64);
for (let count = cq.poll(wcs); count > 0; count = cq.poll(wcs))
  for (const wc of wcs.slice(0, count)) {
    throwIfFailed(wc);
    texts.push(mr.buffer.toString('latin1', 4096 + 64 * wc.wrId, 4096 + 64 * wc.wrId + wc.byteLen));
  }
console.log(
  JSON.stringify({ texts, written: mr.buffer.toString('latin1', 0, 23), sum: Number(mr.buffer.readBigUInt64LE(1024)) }),
);
await device.close({ force: true });
