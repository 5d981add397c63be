/** Requests that the core rejects without an event, and the reasons in their REJs. */
import { expect, describe as group, test } from 'vitest';
import { RejectReason } from '../../src/cm/core/reasons.js';
import { ACCEPT, Conversation, PEER_ID } from './conversation.js';
import * as mads from './mads.js';

group('a request is refused for each field that no connection can have', () => {
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
    const talk = new Conversation({ maxMtu: 2048 });
    talk.receive(mads.req(changes));
    expect(talk.sentOne('REJ')).toMatchObject({
      reason,
      infoLength,
      tid: mads.REQ.tid,
      messageRejected: 0,
      localCommId: 0,
      remoteCommId: PEER_ID,
    });
    expect(talk.events()).toEqual([]);
    expect(talk.core.size).toBe(0);
  });

  test('a refusal for the path MTU names the largest that the card can', () => {
    const talk = new Conversation({ maxMtu: 2048 }).receive(mads.req({ mtu: 5 }));
    expect(talk.sentOne('REJ').info[0]).toBe(4);
  });

  test('a request for another address than the listener’s is refused', () => {
    const talk = new Conversation();
    talk.core.listen({ space: 'TCP', port: 9000, address: '10.0.0.77', transport: 'RC', backlog: 1 });
    talk.receive(mads.req({ port: 9000 }));
    expect(talk.sentOne('REJ').reason).toBe(28);
  });

  test('a request beyond the backlog is refused until the program decides about one', () => {
    const talk = new Conversation({ backlog: 2 });
    const ask = (id: number) => talk.receive(mads.req({ id, qpn: id }));
    ask(1);
    ask(2);
    const [first] = talk.events();
    talk.discard();
    ask(3);
    expect(talk.sentOne('REJ').reason).toBe(RejectReason.NO_RESOURCES);
    talk.core.accept(first?.id as number, ACCEPT, talk.now);
    talk.discard();
    ask(4);
    talk.event('CONNECT_REQUEST');
  });

  test('a peer that fills the backlog gives places to another until both have as many', () => {
    const talk = new Conversation({ backlog: 4 });
    const ask = (host: number, id: number) => {
      talk.source = `10.0.0.${host}`;
      talk.receive(mads.req({ id, qpn: id, guid: BigInt(host), from: [10, 0, 0, host] }));
      return [
        ...talk.sent().map((m) => (m.name === 'REJ' ? `REJ ${m.reason} to ${m.remoteCommId}` : m.name)),
        ...talk.events().map(({ type }) => type),
      ].join();
    };
    for (const id of [1, 2, 3, 4]) expect(ask(2, id)).toBe('CONNECT_REQUEST');
    expect(ask(2, 5)).toBe('REJ 3 to 5');
    expect(ask(3, 6)).toBe('REJ 3 to 1,REJECTED,CONNECT_REQUEST');
    expect(ask(3, 7)).toBe('REJ 3 to 2,REJECTED,CONNECT_REQUEST');
    expect(ask(3, 8)).toBe('REJ 3 to 8');
    expect(ask(4, 9)).toBe('REJ 3 to 3,REJECTED,CONNECT_REQUEST');
  });

  test('beyond the limit of half-open connections, the peer with the most loses its oldest', () => {
    const talk = new Conversation({ backlog: 200 });
    const half = (host: number, id: number) => {
      talk.source = `10.0.0.${host}`;
      talk.receive(mads.req({ id, qpn: id, guid: BigInt(host), from: [10, 0, 0, host] }));
      const request = talk.events().find(({ type }) => type === 'CONNECT_REQUEST');
      talk.core.accept(request?.id as number, ACCEPT, talk.now);
      return { id: request?.id as number, sent: talk.sent().map(({ name }) => name), events: talk.events() };
    };
    const honest = half(3, 1000);
    const attackers = Array.from({ length: 199 }, (_, i) => half(2, i + 1));
    expect(attackers.at(-1)?.events).toEqual([]);
    const next = half(2, 300);
    expect(next.sent).toEqual(['REP', 'REJ']);
    expect(next.events).toMatchObject([{ type: 'UNREACHABLE', id: attackers[0]?.id }]);
    expect(half(4, 301).events).toMatchObject([{ type: 'UNREACHABLE', id: attackers[1]?.id }]);
    expect(talk.core.stateOf(honest.id)).toBe('REP_SENT');
    // After 10 s and timewait nothing is left of any of them.
    talk.wait(11_000);
    expect(talk.core.size).toBe(0);
  });

  test('beyond 256 half-open connections, one that has waited for a second gives its place to another', () => {
    const talk = new Conversation({ backlog: 1000 });
    const half = (n: number) => {
      const from = [10, 1, n >> 8, n & 255];
      talk.source = from.join('.');
      talk.receive(mads.req({ id: n, qpn: n, guid: BigInt(n), from }));
      const request = talk.events().find(({ type }) => type === 'CONNECT_REQUEST');
      talk.core.accept(request?.id as number, ACCEPT, talk.now);
      return { id: request?.id, events: talk.events() };
    };
    const first = half(1);
    talk.wait(1).discard();
    for (let n = 2; n <= 256; n++) expect(half(n).events).toEqual([]);
    talk.wait(998).discard();
    expect(half(257).events).toEqual([]);
    talk.wait(1).discard();
    expect(half(258).events).toMatchObject([{ type: 'UNREACHABLE', id: first.id }]);
    // the others have not had theirs
    expect(half(259).events).toEqual([]);
  });

  test('a peer with 256 unestablished connections gets another when its oldest has waited for a second', () => {
    const talk = new Conversation({ backlog: 1000 });
    const ask = (host: number, id: number) => {
      talk.source = `10.0.0.${host}`;
      talk.receive(mads.req({ id, qpn: id, guid: BigInt(host), from: [10, 0, 0, host] }));
      return talk.events().filter(({ type }) => type === 'CONNECT_REQUEST');
    };
    const accept = (id: number) => talk.core.accept(id, ACCEPT, talk.now);
    const requests = Array.from({ length: 256 }, (_, i) => ask(2, i + 1)[0]?.id as number);
    expect(ask(2, 300)).toEqual([]);
    for (const id of requests) accept(id);
    talk.wait(999).discard();
    expect(ask(2, 300)).toEqual([]);
    expect(talk.core.counters()['cm_ignored.req']).toBe(2);
    expect(ask(3, 301)).toHaveLength(1);
    talk.wait(1).discard();
    const [late] = ask(2, 300);
    expect(talk.core.stateOf(requests[0] as number)).toBe('REP_SENT');
    accept(late?.id as number);
    expect(talk.events()).toMatchObject([{ type: 'UNREACHABLE', id: requests[0] }]);
    // the second oldest had its time as well, but not each request of a flood is to cost a connection
    expect(ask(2, 302)).toEqual([]);
    talk.wait(39).discard();
    expect(ask(2, 302)).toEqual([]);
    talk.wait(1).discard();
    expect(ask(2, 302)).toHaveLength(1);
    expect(talk.core.counters()['cm_ignored.req']).toBe(4);
    // and one at a time: the application has not decided about it
    talk.wait(40).discard();
    expect(ask(2, 303)).toEqual([]);
  });

  test('a flood of one peer costs the application 25 connections a second, after the first 256', () => {
    const talk = new Conversation({ backlog: 1000 });
    const seconds: number[] = [];
    let id = 0;
    for (let second = 0; second < 5; second++) {
      let accepted = 0;
      for (let ms = 0; ms < 1000; ms++) {
        id++;
        talk.receive(mads.req({ id, qpn: id, psn: 1 }));
        for (const event of talk.events()) {
          if (event.type !== 'CONNECT_REQUEST') continue;
          talk.core.accept(event.id, ACCEPT, talk.now);
          accepted++;
        }
        talk.discard().wait(1).discard();
      }
      seconds.push(accepted);
    }
    expect(seconds).toEqual([256, 25, 25, 25, 25]);
  });

  test('a repeated REQ of a peer that has to wait is answered, whether its request was accepted or not', () => {
    const talk = new Conversation({ backlog: 1000 });
    const ask = (id: number) => talk.receive(mads.req({ id, qpn: id }));
    for (let id = 1; id <= 256; id++) ask(id);
    const [first] = talk.events();
    talk.core.accept(first?.id as number, ACCEPT, talk.now);
    talk.discard();
    for (const id of [300, 1, 2]) ask(id);
    expect(talk.sent().map(({ name }) => name)).toEqual(['REP', 'MRA']);
    // its queue pair 2 belongs to another attempt
    talk.receive(mads.req({ id: 301, qpn: 2 }));
    expect(talk.sentOne('REJ').reason).toBe(RejectReason.STALE_CONNECTION);
  });

  test('a listener remembers the newest 256 refused requests', () => {
    const talk = new Conversation({ backlog: 1 });
    for (let id = 1; id <= 1000; id++) {
      talk.request({ id, qpn: id }).reject();
      expect(talk.core.size).toBeLessThanOrEqual(256);
    }
    talk.discard().receive(mads.req({ id: 1000, qpn: 1000 }));
    talk.sentOne('REJ');
    talk.receive(mads.req({ id: 1, qpn: 1 }));
    talk.event('CONNECT_REQUEST');
  });

  test('a core at its limit of connections ignores further REQs', () => {
    const talk = new Conversation({ maxConnections: 2 });
    for (const id of [1, 2, 3]) talk.receive(mads.req({ id, qpn: id }));
    expect([talk.core.size, talk.sent().length, talk.events().length]).toEqual([2, 0, 2]);
    expect(talk.core.counters()['cm_ignored.req']).toBe(1);
  });

  test('a REQ for a port whose listener is closed is refused', () => {
    const talk = new Conversation();
    talk.core.unlisten(talk.listener);
    expect(talk.core.isListening('TCP', 7174)).toBe(false);
    talk.receive(mads.req());
    expect(talk.sentOne('REJ').reason).toBe(8);
  });
});
