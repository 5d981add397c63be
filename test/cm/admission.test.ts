/** Which requests a program never hears of, and what their senders are told. */
import { expect, describe as group, test } from 'vitest';
import { RejectReason } from '../../src/cm/reasons.js';
import * as mads from './mads.js';
import { ACCEPT, PEER_ID, Talk } from './talk.js';

group('a request is refused', () => {
  const v4 = (...ip: number[]) => ({ from: ip });
  test.each([
    ['nobody listens on the port', { port: 7175 }, 8, 0],
    ['nobody listens in the port space', { space: 0x013f }, 8, 0],
    ['not a service of rdma_cm', { space: 0x5555 }, 8, 0],
    ['not for our address', { to: [10, 0, 0, 9] }, 12, 16],
    ['in a partition that we are not in', { pkey: 0x8001 }, 5, 0],
    ['another version of the header', { hdrVersion: 1 }, 28, 0],
    ['another version of IP', { ipVersion: 0x50 }, 28, 0],
    ['from nowhere', v4(0, 0, 0, 0), 28, 0],
    ['from loopback', v4(127, 0, 0, 1), 28, 0],
    ['from a group', v4(224, 0, 0, 1), 28, 0],
    ['from everybody', v4(255, 255, 255, 255), 28, 0],
    ['unreliable connection, listener is reliable', { transport: 1 }, 9, 0],
    ['reliable datagrams', { transport: 2 }, 9, 0],
    ['path MTU 0', { mtu: 0 }, 26, 1],
    ['path MTU that does not exist', { mtu: 6 }, 26, 1],
    ['path MTU larger than ours', { mtu: 5 }, 26, 1],
  ])('%s', (_, changes, reason, infoLength) => {
    const talk = new Talk({ maxMtu: 2048 });
    talk.hear(mads.req(changes));
    expect(talk.saidOne('REJ')).toMatchObject({
      reason,
      infoLength,
      tid: mads.REQ.tid,
      messageRejected: 0,
      localCommId: 0,
      remoteCommId: PEER_ID,
    });
    expect(talk.told()).toEqual([]);
    expect(talk.core.size).toBe(0);
  });

  test('the largest path MTU that we can is told', () => {
    const talk = new Talk({ maxMtu: 2048 }).hear(mads.req({ mtu: 5 }));
    expect(talk.saidOne('REJ').info[0]).toBe(4);
  });

  test('for a listener on another of our addresses', () => {
    const talk = new Talk();
    talk.core.listen({ space: 'TCP', port: 9000, address: '10.0.0.77', transport: 'RC', backlog: 1 });
    talk.hear(mads.req({ port: 9000 }));
    expect(talk.saidOne('REJ').reason).toBe(28);
  });

  test('more than the backlog wait for the program, until it decides', () => {
    const talk = new Talk({ backlog: 2 });
    const ask = (id: number) => talk.hear(mads.req({ id, qpn: id }));
    ask(1);
    ask(2);
    const [first] = talk.told();
    talk.quiet();
    ask(3);
    expect(talk.saidOne('REJ').reason).toBe(RejectReason.NO_RESOURCES);
    talk.core.accept(first?.id as number, ACCEPT, talk.now);
    talk.quiet();
    ask(4);
    talk.toldOne('CONNECT_REQUEST');
  });

  test('nobody listens any more', () => {
    const talk = new Talk();
    talk.core.unlisten(talk.listener);
    expect(talk.core.isListening('TCP', 7174)).toBe(false);
    talk.hear(mads.req());
    expect(talk.saidOne('REJ').reason).toBe(8);
  });
});
