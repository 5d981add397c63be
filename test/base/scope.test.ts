// Scope: resources close in reverse order, whatever fails.
import { expect, test } from 'vitest';
import { Scope } from '../../src/base/scope.js';

/** Returns resources that write down when they close; those with an error then throw it. */
function recorder() {
  const closed: string[] = [];
  const resource = (name: string, error?: Error) => ({
    async close() {
      await undefined;
      closed.push(name);
      if (error !== undefined) throw error;
    },
  });
  return { closed, resource };
}

test('resources are closed in reverse order, and once', async () => {
  const { closed, resource } = recorder();
  const scope = new Scope();
  for (const name of ['a', 'b', 'c']) scope.add(resource(name));
  await Promise.all([scope.close(), scope.close()]);
  await scope.close();
  expect(closed).toEqual(['c', 'b', 'a']);
});

test('a resource that cannot be closed does not keep the others open, and the first error is thrown', async () => {
  const { closed, resource } = recorder();
  const scope = new Scope();
  scope.add(resource('a', new Error('of a')));
  scope.add(resource('b', new Error('of b')));
  scope.add(resource('c'));
  await expect(scope.close()).rejects.toThrow('of b');
  expect(closed).toEqual(['c', 'b', 'a']);
});

test('a second close tries the resources that the first could not close, in the same order', async () => {
  const { closed, resource } = recorder();
  const isBusy = { b: true, c: true };
  const scope = new Scope();
  scope.add(resource('a'));
  for (const name of ['b', 'c'] as const) {
    const { close } = resource(name);
    scope.add({ close: () => (isBusy[name] ? Promise.reject(new Error(`${name} is busy`)) : close()) });
  }
  await expect(scope.close()).rejects.toThrow('c is busy');
  isBusy.c = false;
  await expect(scope.close()).rejects.toThrow('b is busy');
  isBusy.b = false;
  await scope.close();
  await scope.close();
  expect(closed).toEqual(['a', 'c', 'b']);
});

test('when opening fails half-way, what is open is closed, and the cause is thrown', async () => {
  const { closed, resource } = recorder();
  const opening = Scope.open(async (scope) => {
    scope.add(resource('a'));
    scope.add(resource('b', new Error('of b')));
    throw new Error('no memory');
  });
  await expect(opening).rejects.toThrow('no memory');
  expect(closed).toEqual(['b', 'a']);
});

test('what has been opened stays open until its scope is closed', async () => {
  const { closed, resource } = recorder();
  const scope = await Scope.open(async (opened) => {
    opened.add(resource('a'));
    return opened;
  });
  expect(closed).toEqual([]);
  await scope.close();
  expect(closed).toEqual(['a']);
});
