/** Datagram sockets against stock programs of rdma-core in either role: udaddy, which asks for ports, and mckey. */
import { expect, test } from 'vitest';
import { OurDevice } from './card.js';
import { ADDRESSES, PATIENCE } from './cm-end.js';
import { describeWithRxe, FAMILY_NAMES } from './environment.js';
import { CARD } from './guest/network.js';
import { mckeyReceives } from './mckey.js';

const COUNT = 10;
const BYTES = 100;
const SOON = { timeout: 20_000 };

describeWithRxe('datagram sockets', 1500, (environment) => {
  test.each(FAMILY_NAMES)('udaddy serves our client, %s', async (family) => {
    await using our = await OurDevice.open('packet');
    const { guest } = ADDRESSES[family];
    const server = environment.guest.spawn(['udaddy', '-b', guest]);
    await environment.guest.listening(7174, 'rdma');
    const socket = await our.device.createSocket().bind();
    for (let i = 0; i < COUNT; i++) await socket.send(Buffer.alloc(BYTES, i), 7174, guest, SOON);
    for (let i = 0; i < COUNT; i++)
      expect((await socket.receive(SOON))?.rinfo).toMatchObject({ address: guest, port: 7174, size: BYTES });
    expect((await server.exited).status).toBe(0);
    await socket.close();
  });

  test.each(FAMILY_NAMES)('udaddy connects to our service, %s', async (family) => {
    await using our = await OurDevice.open('packet');
    const socket = await our.device.createSocket().bind(7174);
    const client = environment.guest.run(['udaddy', '-s', ADDRESSES[family].card], PATIENCE);
    const received = [];
    while (received.length < COUNT) received.push(await socket.receive(SOON));
    for (const message of received) {
      if (message === undefined) throw new Error('the socket is closed');
      expect(message.rinfo).toMatchObject({ address: ADDRESSES[family].guest, port: 0, size: BYTES });
      await socket.send(message.data, message.rinfo);
    }
    await client;
    await socket.close();
  });

  // IPv4 only: rdma_cm of Linux refuses to join IPv6 groups on RoCE v2.
  test('mckey receives what we send to a group', async () => {
    await using our = await OurDevice.open('packet');
    const group = '239.77.0.3';
    const socket = await our.device.createSocket().bind(0, CARD.ipv4);
    await mckeyReceives(environment, group, COUNT, () => socket.send(Buffer.alloc(BYTES), 7174, group));
    await socket.close();
  });
});
