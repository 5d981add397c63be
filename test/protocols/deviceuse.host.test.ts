// Devices that sockets open by themselves.
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { useDevice } from '../../src/deviceuse.js';
import { configure, connect, createServer, type Socket } from '../../src/net.js';

const HOST = '127.0.0.1';
const VARIABLE = 'WASM_ROCE_MEMORY_BYTES';
const DEFAULT_BYTES = 2 ** 30;

afterEach(() => {
  delete process.env[VARIABLE];
});

/** @returns the size of the memory of a device that is opened now */
async function memoryOfNext(): Promise<number> {
  const use = await useDevice(undefined, { peer: HOST });
  const { memoryBytes } = use.device.query();
  await use.close();
  return memoryBytes;
}

test('a shared device has memory for thousands of sockets', async () => {
  const COUNT = 1000;
  const server = createServer((socket) => socket.pipe(socket)).listen(0, HOST);
  await once(server, 'listening');
  const drops: unknown[] = [];
  server.on('drop', (ends) => drops.push(ends));
  const { port } = server.address() as { port: number };
  const sockets: Socket[] = [];
  while (sockets.length < COUNT) {
    const some = Array.from({ length: 50 }, () => connect(port, HOST));
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    sockets.push(...some);
  }
  await Promise.all(
    sockets.map(async (socket) => {
      socket.write('hello');
      expect(`${(await once(socket, 'data'))[0]}`).toBe('hello');
    }),
  );
  expect(drops).toEqual([]);
  const closed = sockets.map((socket) => once(socket, 'close'));
  for (const socket of sockets) socket.destroy();
  await Promise.all(closed);
  await new Promise((resolve) => server.close(resolve));
});

test('`configure` and the environment refuse a wrong size by name', async () => {
  expect(() => configure({ memoryBytes: 1000 })).toThrow(/memoryBytes.* 1000,.* 8388608 to 4294967296/);
  expect(() => configure({ memory: 2 ** 24 } as object)).toThrow(/no option 'memory'/);
  process.env[VARIABLE] = '1g';
  const [wrong] = await once(connect(7471, HOST), 'error');
  expect(wrong.message).toMatch(/WASM_ROCE_MEMORY_BYTES.*'1g'.*integer/);
  process.env[VARIABLE] = '1000';
  const [small] = await once(connect(7471, HOST), 'error');
  expect(small.message).toMatch(/WASM_ROCE_MEMORY_BYTES.*1000/);
});

test('the environment sets the memory of shared devices, and `configure` goes before it', async () => {
  expect(await memoryOfNext()).toBe(DEFAULT_BYTES);
  process.env[VARIABLE] = `${2 ** 25}`;
  expect(await memoryOfNext()).toBe(2 ** 25);
  configure({ memoryBytes: 2 ** 24 });
  expect(await memoryOfNext()).toBe(2 ** 24);
  configure({});
  expect(await memoryOfNext()).toBe(2 ** 24);
});
