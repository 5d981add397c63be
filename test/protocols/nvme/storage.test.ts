// Files as storages of namespaces.
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fileStorage } from '../../../src/nvme.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'wasm-roce-storage-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const path = (name: string, bytes?: number) => {
  const file = join(folder, name);
  if (bytes !== undefined) writeFileSync(file, Buffer.alloc(bytes, 7));
  return file;
};

test('a missing or shorter file gets the size; the rest is zero', async () => {
  const missing = await fileStorage(path('missing'), { size: 2 ** 20 });
  const shorter = await fileStorage(path('shorter', 512), { size: 2 ** 20 });
  for (const [name, storage] of [
    ['missing', missing],
    ['shorter', shorter],
  ] as const) {
    expect([storage.bytes, storage.isReadOnly, statSync(path(name)).size]).toEqual([2 ** 20, false, 2 ** 20]);
    const end = Buffer.alloc(512, 1);
    await storage.read(end, 2 ** 20 - 512);
    expect(end).toEqual(Buffer.alloc(512));
    await storage.write(Buffer.alloc(512, 9), 2 ** 20 - 512);
    await storage.flush();
    await storage.read(end, 2 ** 20 - 512);
    expect(end).toEqual(Buffer.alloc(512, 9));
    await storage.close();
  }
});

test('a file without the option keeps its size', async () => {
  const storage = await fileStorage(path('own', 4096), { readOnly: true });
  expect([storage.bytes, storage.isReadOnly]).toEqual([4096, true]);
  await expect(storage.write(Buffer.alloc(512), 0)).rejects.toThrow('EBADF');
  await expect(storage.read(Buffer.alloc(512), 4096)).rejects.toThrow('EIO: the file ends before byte 4608');
  await storage.close();
});

test.each([
  ['none', undefined, {}, 'ENOENT'],
  ['none', undefined, { size: 512, readOnly: true }, 'ENOENT'],
  ['empty', 0, {}, 'has no size: give one, such as size=1G'],
  ['long', 1024, { size: 512 }, 'has 1024 bytes, which are more than 512'],
  ['short', 512, { size: 1024, readOnly: true }, 'has 512 bytes, which are less than 1024'],
])('%s of %s bytes with %j is refused', async (name, bytes, options, message) => {
  await expect(fileStorage(path(name, bytes), options)).rejects.toThrow(message);
});
