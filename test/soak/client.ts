/**
 * A client of the endpoint, in a process that may be killed at any time: `client.ts INTERFACE SLOT HOST...`. It
 * connects again and again to one of the hosts. It reports one JSON object on each line of standard output: a `Report`.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, type Device, openDevice } from '../../src/index.js';
import { type Report, SLOT_BYTES } from './report.js';

const PATIENCE_MS = 5000;
const [, , interfaceName = '', slot = '0', ...hosts] = process.argv;

function report(what: Report): void {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

function compare(sent: Buffer, came: Uint8Array | undefined, what: string): number {
  if (came && sent.equals(came)) return sent.length;
  report({ did: what, wrong: `${sent.length} bytes sent, ${came?.length} came back, or others` });
  process.exit(3);
}

async function echo(connection: Connection): Promise<number> {
  let bytes = 0;
  for (let count = randomInt(1, 20); count > 0; count--) {
    const sent = randomBytes(randomInt(1, connection.messageBytes));
    await connection.send(sent);
    const message = await connection.receive({ signal: AbortSignal.timeout(PATIENCE_MS) });
    if (message === undefined) throw Object.assign(new Error('the endpoint has left'), { code: 'END' });
    bytes += compare(sent, message.data, 'messages');
  }
  return bytes;
}

async function regions(connection: Connection): Promise<number> {
  const message = await connection.receive({ signal: AbortSignal.timeout(PATIENCE_MS) });
  const [region] = JSON.parse(String(message?.data ?? '[]'));
  if (region === undefined) throw Object.assign(new Error('no region'), { code: 'END' });
  const offset = Number(slot) * SLOT_BYTES;
  let bytes = 0;
  for (let count = randomInt(1, 20); count > 0; count--) {
    const sent = randomBytes(randomInt(1, SLOT_BYTES));
    await connection.write(region, sent, { offset });
    bytes += compare(sent, await connection.read(region, { offset, length: sent.length }), 'regions');
  }
  return bytes;
}

async function once(device: Device): Promise<void> {
  const host = hosts[randomInt(hosts.length)] as string;
  const [did, port, work] =
    randomInt(2) === 0 ? (['messages', 7471, echo] as const) : (['regions', 7472, regions] as const);
  const connection = await device.connect({ host, port, timeout: PATIENCE_MS });
  report({ did: 'connect' });
  try {
    report({ did, bytes: await work(connection) });
  } finally {
    // one in four leaves without a word
    if (randomInt(4) === 0) connection.destroy();
    else await connection.close();
  }
}

const device = await openDevice({ interface: interfaceName, memoryBytes: 2 ** 25 });
// the end of its input is the end of its work
let isOver = false;
process.stdin
  .on('end', () => {
    isOver = true;
  })
  .resume();
while (!isOver) {
  try {
    await once(device);
  } catch (error) {
    const { code, name } = error as Error & { code?: unknown };
    report({ did: 'refused', code: typeof code === 'string' ? code : name });
    await sleep(100);
  }
}
await device.close({ force: true });
