/** Persistence of connections: the option `retryCnt` of both ends. */
import { expect, test } from 'vitest';
import { createMemoryHub, type ListenOptions } from '../../../src/index.js';
import { openOn } from '../../verbs/pair.js';

type Retries = number | undefined;

/** Connects two devices with the option at each end. @returns the retries of both queue pairs */
async function retriesOf(client: Retries, server: Retries, byEvent: boolean): Promise<[number, number]> {
  const option = (retryCnt: Retries) => (retryCnt === undefined ? {} : { retryCnt });
  const hub = createMemoryHub();
  await using a = await openOn(hub);
  await using b = await openOn(hub, { seed: 2 });
  const options: ListenOptions = { port: 7471, ...(byEvent && { accept: option(server) }) };
  await using listening = await b.listen(options);
  const accepted = byEvent
    ? new Promise<import('../../../src/index.js').Connection>((resolve) => listening.once('connection', resolve))
    : listening.next().then(async (request) => request?.accept(option(server)));
  await using connection = await a.connect({
    host: b.gids.find(({ address }) => !address.includes(':'))?.address as string,
    port: 7471,
    ...option(client),
  });
  await using other = await accepted;
  // its queue pair is in RTS once the client's data or RTU has arrived
  await connection.send(Buffer.from('hello'));
  await other?.receive();
  return [connection.qp.query().retryCnt, other?.qp.query().retryCnt ?? Number.NaN];
}

test.each([
  ['by default neither has a limit', undefined, undefined, [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]],
  ['the limit of a client is its own', 3, undefined, [3, Number.POSITIVE_INFINITY]],
  ['each has its own', 3, 5, [3, 5]],
  ['the limit of a server is its own', undefined, 5, [Number.POSITIVE_INFINITY, 5]],
] as const)('%s', async (_, client, server, expected) => {
  for (const byEvent of [false, true]) expect(await retriesOf(client, server, byEvent)).toEqual(expected);
});

test('other numbers are refused', async () => {
  await using device = await openOn(createMemoryHub());
  const { address } = device.gids[0] as { address: string };
  for (const retryCnt of [8, -1, 1.5])
    await expect(device.connect({ host: address, port: 1, retryCnt })).rejects.toThrow(`retryCnt is ${retryCnt}`);
});
