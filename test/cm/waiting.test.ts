/** The calls of an id that wait: a signal or a timeout ends the wait, and wrong options are refused by name. */
import { expect, describe as group, test } from 'vitest';
import { createCmId } from '../../src/index.js';
import { DevicePair, eventsOf, PORT } from './devicepair.js';

const reason = new Error('enough');

/** Calls of ids whose peer does not answer. */
const CALLS = {
  connect: async (pair: DevicePair) => {
    await pair.listen();
    const { id } = await pair.resolved();
    return (wait: object) => id.connect({}, wait);
  },
  accept: async (pair: DevicePair) => {
    const listener = await pair.listen();
    // Without a queue pair, and without `establish`: it never gets ready.
    const id = createCmId(pair.client.device);
    await id.resolveAddr(pair.addressOf(pair.server), PORT);
    await id.resolveRoute();
    void id.connect({ qpNum: 0x77 }).catch(() => {});
    const server = await pair.withQp(pair.server, await listener.getRequest());
    return (wait: object) => server.id.accept({}, wait);
  },
  disconnect: async (pair: DevicePair) => {
    const { client } = await pair.connected();
    (pair.server.device as unknown as { fail(why: string): void }).fail('test');
    return (wait: object) => client.id.disconnect({}, wait);
  },
};

group.each(Object.entries(CALLS))('%s', (_name, prepare) => {
  test('a call with an aborted signal or wrong options does not begin', async () => {
    const call = await prepare(await DevicePair.forTest());
    await expect(call({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(call({ singal: 1 })).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_VALUE' });
    await expect(call({ timeout: 'soon' })).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_TYPE' });
    // It still can be.
    await expect(call({ timeout: 5 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  });

  test('a wait ends by its signal', async () => {
    const call = await prepare(await DevicePair.forTest());
    const abort = new AbortController();
    const calling = call({ signal: abort.signal });
    abort.abort(reason);
    await expect(calling).rejects.toBe(reason);
  });
});

test('a group is not joined with an aborted signal', async () => {
  const pair = await DevicePair.forTest();
  const id = createCmId(pair.client.device, { space: 'UDP' });
  await id.bindAddr(pair.addressOf(pair.client));
  await pair.withQp(pair.client, id);
  const group = '239.1.1.1';
  await expect(id.joinMulticast(group, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  await expect(id.joinMulticast(group, { sendonly: true } as object)).rejects.toThrow("no option 'sendonly'");
  await id.joinMulticast(group, { timeout: 5000, sendOnly: true });
});

test('reject and disconnect refuse unknown options', async () => {
  const pair = await DevicePair.forTest();
  const listener = await pair.listen();
  const { id } = await pair.resolved();
  const connecting = id.connect();
  const request = await listener.getRequest();
  await expect(request.reject({ raeson: 'NO_QP' } as object)).rejects.toThrow("id.reject has no option 'raeson'");
  await expect(id.disconnect({ privatData: 1 } as object)).rejects.toThrow("no option 'privatData'");
  await request.reject();
  await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(eventsOf(id).at(-1)).toBe('REJECTED');
});
