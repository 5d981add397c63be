// The evidence of a check: its packets in the order of their times.
import { expect, test } from 'vitest';
import type { ResponderCheck } from '../../../src/probe/checks/check.js';
import { runCheck } from '../../../src/probe/checks/run.js';
import { ack, flow, frame } from '../../../src/probe/packet/packets.js';
import type { PacketPort } from '../../../src/probe/script/port.js';

const check: ResponderCheck = {
  ...{ number: 1000, name: 'three', title: 'It holds', clause: 'none', sends: 'WRITEs', expects: 'an ACK' },
  needs: { receives: false },
  async run(talk) {
    talk.send(talk.write(new Uint8Array(3000)));
    await talk.next();
  },
};

test('an answer that came between two packets stands between them, although it was read later', async () => {
  let now = 0;
  const there = flow();
  const port: PacketPort = {
    ...{ flow: there, mtu: 1024 },
    now: () => now,
    send() {
      now += 10;
      return now;
    },
    receive: async () => ({ frame: frame(flow(), ack({ psn: 100, msn: 0 })), at: 15 }),
  };
  const region = { va: 0n, rkey: 1, length: 65536 };
  const responder = async () => ({ port, psn: 100, region, receives: 0, receiveBytes: 0 });
  const { verdict, evidence } = await runCheck(check, { responder });
  expect(verdict).toBe('pass');
  expect(evidence.map(({ at, direction }) => `${at} ${direction}`)).toEqual(['10 out', '15 in', '20 out', '30 out']);
});
