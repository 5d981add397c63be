/**
 * The card alone: two devices of one process on the memory link, everything but a network. Beside it what cannot be saved:
 * copying the same bytes and their checksum, with Node's own means. One thread does both ends, so a single end costs half.
 *
 *     npm run bench          a table, and build/bench/card.json
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { crc32 } from 'node:zlib';
import Table from 'cli-table3';
import { createMemoryHub, type Device, type Mr, openDevice, type Qp, throwIfFailed } from '../src/index.js';

/** Each row is measured so long (ms), so often; the median counts. */
const WINDOW = 300;
const ROUNDS = 5;

interface End {
  readonly device: Device;
  readonly mr: Mr;
  readonly qp: Qp;
}

interface Row {
  readonly work: string;
  readonly size: number;
  readonly mtu: number;
  readonly gbps: number;
  readonly perSecond: number;
  /** How many times as long as copying the bytes and computing their CRC-32 takes. */
  readonly overLimit: number;
}

const hub = createMemoryHub();

async function end(address: string): Promise<End> {
  const device = await openDevice({ link: 'memory', hub, addresses: [address] });
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 1024 });
  const mr = await pd.regMr(2 ** 22, { access: ['localWrite', 'remoteWrite', 'remoteRead'] });
  return { device, mr, qp: await pd.createQp({ sendCq: cq, maxSendWr: 256, sqSigAll: false }) };
}

/** Requests per second, `depth` of them in flight. */
async function measure(from: End, to: End, opcode: 'RDMA_WRITE' | 'RDMA_READ', size: number): Promise<number> {
  const depth = size > 65536 ? 4 : 64;
  const request = {
    opcode,
    sgList: from.mr.slice(0, size),
    remoteAddr: to.mr.remote.addr,
    rkey: to.mr.remote.rkey,
  } as const;
  const rates: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    let count = 0;
    while (performance.now() - start < WINDOW) {
      for (let i = 1; i < depth; i++) from.qp.postSend(request);
      from.qp.postSend({ ...request, signaled: true });
      throwIfFailed(await from.qp.sendCq.next());
      count += depth;
    }
    rates.push((count * 1000) / (performance.now() - start));
  }
  return rates.sort((a, b) => a - b)[ROUNDS >> 1] as number;
}

/** Seconds for copying `size` bytes twice and computing their CRC-32 twice: what both ends of a transfer cannot save. */
function limit(size: number): number {
  const from = Buffer.alloc(size, 1);
  const to = Buffer.alloc(size);
  const start = performance.now();
  let count = 0;
  while (performance.now() - start < WINDOW) {
    for (let end = 0; end < 2; end++) {
      from.copy(to);
      crc32(to);
    }
    count++;
  }
  return (performance.now() - start) / 1000 / count;
}

const rows: Row[] = [];
for (const mtu of [1024, 4096] as const) {
  const [a, b] = [await end(`10.1.${mtu >> 8}.1`), await end(`10.1.${mtu >> 8}.2`)];
  await a.qp.connect(b.qp.endpoint(), { pathMtu: mtu });
  await b.qp.connect(a.qp.endpoint(), { pathMtu: mtu, access: ['remoteWrite', 'remoteRead'] });
  for (const opcode of ['RDMA_WRITE', 'RDMA_READ'] as const)
    for (const size of [8, 4096, 65536, 1048576]) {
      const perSecond = await measure(a, b, opcode, size);
      rows.push({
        work: opcode,
        size,
        mtu,
        gbps: (perSecond * size * 8) / 1e9,
        perSecond,
        overLimit: 1 / perSecond / limit(size),
      });
    }
  await a.device.close({ force: true });
  await b.device.close({ force: true });
}

const table = new Table({
  head: ['operation', 'bytes', 'path MTU', 'Gbit/s', 'requests/s', 'times copy + zlib CRC'],
  style: { head: [], border: [] },
});
for (const { work, size, mtu, gbps, perSecond, overLimit } of rows)
  table.push([work, size, mtu, gbps.toFixed(2), Math.round(perSecond), overLimit.toFixed(2)]);
console.log(table.toString());
mkdirSync('build/bench', { recursive: true });
writeFileSync(
  'build/bench/card.json',
  `${JSON.stringify({ cpu: cpus()[0]?.model, node: process.version, rows }, null, 1)}\n`,
);
