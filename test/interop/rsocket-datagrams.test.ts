// Sockets of wasm-roce/dgram and the stock program of datagram rsockets, udpong, in both roles.
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createSocket, type Socket } from '../../src/dgram.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import type { GuestCommand } from './guest/command.js';
import { CARD, GUEST } from './guest/network.js';

const PORT = 7174;
/** Messages of a run. */
const COUNT = 100;
/** Time after which a message without an answer is sent again. */
const REPEAT_MS = 200;
/** Bytes of the messages that are no data. */
const CONTROL_BYTES = 16;
/** The largest message at a path MTU of 1024. */
const SIZES = { IPv4: [16, 64, 1016], IPv6: [16, 64, 1000] } as const;

/** The first byte of a message of udpong. Then follow numbers of client and message, 0, and a count of 32 bits. */
enum Op {
  LOGIN,
  START,
  DATA,
  ECHO,
  END,
}

const message = (op: Op, sequence: number, size = CONTROL_BYTES): Buffer => {
  const bytes = Buffer.alloc(size);
  bytes[0] = op;
  bytes[2] = sequence;
  return bytes;
};

describeWithRxe('datagram rsockets', 1500, (environment) => {
  describe.each([
    ['IPv4', CARD.ipv4, GUEST.ipv4, {}],
    ['IPv6', CARD.ipv6, GUEST.ipv6, {}],
    ['IPv4, with losses', CARD.ipv4, GUEST.ipv4, { faults: { seed: 71, both: { drop: 0.01 } } }],
  ] as const)('%s', (name, ours, theirs, card) => {
    const family = name === 'IPv6' ? 'IPv6' : 'IPv4';
    let our: OurDevice;
    beforeAll(async () => {
      our = await OurDevice.open('packet', card);
    });
    afterAll(() => our[Symbol.asyncDispose]());

    async function open(port: number): Promise<Socket> {
      const socket = createSocket({ type: family === 'IPv4' ? 'udp4' : 'udp6', device: our.device });
      onTestFinished(() => void socket.close());
      socket.bind(port, ours);
      await once(socket, 'listening');
      return socket;
    }

    /** The first GID of rxe is that of its link-local address. */
    const udpong = (...options: string[]): GuestCommand =>
      environment.guest.spawn([
        ...['env', 'LD_PRELOAD=/usr/lib/datagramroute.so', `ROUTE_GID=${family === 'IPv4' ? 1 : 2}`],
        ...['udpong', '-p', String(PORT), '-b', theirs, ...options],
      ]);

    test.each(SIZES[family])('udpong is the client, messages of %d bytes', async (size) => {
      const socket = await open(PORT);
      let data = 0;
      const sent = () => our.device.counters().sent_pkts ?? 0;
      const before = sent();
      socket.on('message', (bytes, { port, address }) => {
        if (bytes[0] === Op.DATA) data++;
        else if (bytes[0] === Op.END) bytes.writeUInt32BE(data, 4);
        if (bytes[0] !== Op.DATA) socket.send(bytes, port, address);
      });
      const { status, stdout, stderr } = await udpong('-s', ours, '-S', String(size), '-C', String(COUNT)).exited;
      expect([status, stdout], stderr).toEqual([0, expect.stringMatching(/\d/)]);
      // most by RDMA, not by UDP
      expect(sent() - before).toBeGreaterThan(1);
    });

    test.each(SIZES[family])('udpong is the server, messages of %d bytes', async (size) => {
      const server = udpong();
      onTestFinished(() => server.kill().then(() => {}));
      const socket = await open(0);
      let sequence = 0;
      /** Messages that the server counts: those that are echoed as well. */
      let counted = 0;
      /** Sends a message until its answer comes, as udpong does. */
      const ask = async (op: Op, bytes: number): Promise<Buffer> => {
        const request = message(op, ++sequence & 0xff, bytes);
        const send = () => {
          if (op === Op.ECHO) counted++;
          socket.send(request, PORT, theirs);
        };
        const repeating = setInterval(send, REPEAT_MS);
        send();
        try {
          for (;;) {
            const [reply] = (await once(socket, 'message')) as [Buffer];
            if (reply[0] === op && reply[2] === request[2]) return reply;
          }
        } finally {
          clearInterval(repeating);
        }
      };
      await ask(Op.LOGIN, CONTROL_BYTES);
      await ask(Op.START, CONTROL_BYTES);
      for (let i = 0; i < COUNT; i++) expect(await ask(Op.ECHO, size)).toHaveLength(size);
      for (; counted < 2 * COUNT; counted++)
        await new Promise((resolve) => socket.send(message(Op.DATA, 0, size), PORT, theirs, resolve));
      const arrived = (await ask(Op.END, CONTROL_BYTES)).readUInt32BE(4);
      // a datagram may be lost, at the latest where the guest has no buffer for it
      expect(arrived).toBeGreaterThan(1.5 * COUNT);
      expect(arrived).toBeLessThanOrEqual(counted);
    });
  });
});
