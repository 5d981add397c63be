// What hands completions over leaves the event loop alone once its queue is closed.
import { expect, test, vi } from 'vitest';
import { Pump } from '../../src/connection/pump.js';
import { MemoryHub } from '../../src/index.js';
import { openOn } from '../verbs/pair.js';

test('a pump rests when its queue is closed', async () => {
  const device = await openOn(new MemoryHub());
  const cq = await device.createCq();
  const pump = new Pump(cq, () => {});
  await cq.close();
  const again = vi.spyOn(globalThis, 'setImmediate');
  pump.drain();
  expect(again).not.toHaveBeenCalled();
  again.mockRestore();
  await device.close();
});
