/**
 * A separate program that prints, as JSON, the bytes that a connection leaves in V8's old generation. Nothing of it is
 * collected here: the heap may grow as it likes.
 */
import { getHeapSpaceStatistics } from 'node:v8';
import { createMemoryHub, openDevice } from '../../../src/index.js';

const PORT = 7471;
const CONNECTIONS = 1000;

const hub = createMemoryHub();
const [client, host] = await Promise.all(
  ['10.0.0.1', '10.0.0.2'].map((address) => openDevice({ link: 'memory', hub, addresses: [address] })),
);
if (client === undefined || host === undefined) throw new Error('unreachable');
const server = await host.listen({ port: PORT });
server.on('connection', (connection) => connection.once('end', () => void connection.close()));

async function connect(times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    const connection = await client?.connect({ host: '10.0.0.2', port: PORT });
    await connection?.close();
  }
}

const oldBytes = () => getHeapSpaceStatistics().find(({ space_name }) => space_name === 'old_space')?.space_used_size;

// V8 compiles, and learns which objects live long.
await connect(CONNECTIONS);
const before = oldBytes() ?? Number.NaN;
await connect(CONNECTIONS);
console.log(JSON.stringify({ bytes: ((oldBytes() ?? Number.NaN) - before) / CONNECTIONS }));
process.exit(0);
