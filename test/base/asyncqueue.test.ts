import { describe, expect, test } from 'vitest';
import { AsyncQueue } from '../../src/base/asyncqueue.js';

describe('a queue with items', () => {
  test('gives its oldest item to the first taker', async () => {
    const queue = new AsyncQueue([1]);
    queue.put(2);
    expect(queue.items).toEqual([1, 2]);
    expect([await queue.take(), queue.shift(), queue.shift()]).toEqual([1, 2, undefined]);
  });

  test('removes the matching items, and keeps the order of the others', () => {
    const queue = new AsyncQueue([1, 2, 3, 4]);
    expect(queue.remove((item) => item % 2 === 0)).toEqual([2, 4]);
    expect(queue.items).toEqual([1, 3]);
  });

  test('gives them before the error of its end, which all later takers get', async () => {
    const queue = new AsyncQueue([1]);
    queue.end(new Error('first'));
    queue.end(new Error('second'));
    expect(await queue.take()).toBe(1);
    await expect(queue.take()).rejects.toThrow('first');
    await expect(queue.take()).rejects.toThrow('first');
  });

  test('gives them before the last item of its end, which all later takers get', async () => {
    const queue = new AsyncQueue<string | undefined>(['a']);
    queue.endWith(undefined);
    queue.end(new Error('too late'));
    expect([await queue.take(), await queue.take(), await queue.take()]).toEqual(['a', undefined, undefined]);
  });

  test('drops items that are put after its end', () => {
    const queue = new AsyncQueue<string>();
    queue.end(new Error('ended'));
    queue.put('a');
    expect([queue.isEnded, queue.items]).toEqual([true, []]);
  });

  test('gives an item at once, whatever the options of the wait', async () => {
    expect(await new AsyncQueue([1]).take({ timeout: 0 })).toBe(1);
  });
});

describe('a queue with takers', () => {
  test('gives items to them in the order of their calls', async () => {
    const queue = new AsyncQueue<string>();
    const taken = [queue.take(), queue.take()];
    expect(queue.waiting).toBe(2);
    queue.put('a');
    queue.put('b');
    queue.put('c');
    expect(await Promise.all(taken)).toEqual(['a', 'b']);
    expect([queue.waiting, queue.items]).toEqual([0, ['c']]);
  });

  test('gives no item to a taker whose wait has ended', async () => {
    const queue = new AsyncQueue<string>();
    const aborter = new AbortController();
    const aborted = queue.take({ signal: aborter.signal });
    const late = queue.take({ timeout: 1 }, 'no message');
    const patient = queue.take();
    aborter.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    await expect(late).rejects.toThrow('ETIMEDOUT: no message within 1 ms');
    expect(queue.waiting).toBe(1);
    queue.put('a');
    expect(await patient).toBe('a');
  });

  test('rejects a taker with wrong options, and forgets it', async () => {
    const queue = new AsyncQueue<string>();
    await expect(queue.take({ timeout: -1 })).rejects.toThrow('timeout is -1, must be milliseconds, 0 or more');
    expect(queue.waiting).toBe(0);
  });

  test('gives its last item to all of them when it ends', async () => {
    const queue = new AsyncQueue<string>();
    const taken = [queue.take(), queue.take()];
    queue.endWith('end');
    expect(await Promise.all(taken)).toEqual(['end', 'end']);
  });

  test('rejects all of them when it ends with an error', async () => {
    const queue = new AsyncQueue<string>();
    const taken = queue.take();
    queue.end(new Error('closed'));
    await expect(taken).rejects.toThrow('closed');
  });

  test('serves later takers after an interruption', async () => {
    const queue = new AsyncQueue<string>();
    const taken = queue.take();
    queue.interrupt(new Error('interrupted'));
    await expect(taken).rejects.toThrow('interrupted');
    const next = queue.take();
    queue.put('a');
    expect(await next).toBe('a');
  });
});
