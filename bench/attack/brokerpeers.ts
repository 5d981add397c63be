/** Programs on the target's own host that misuse the broker. */
import type { Message } from '../../src/base/message.js';
import { BrokerConnection } from '../../src/link/broker/connection.js';
import { BROKER_NAME, PROTOCOL_VERSION } from '../../src/link/broker/protocol.js';
import { native } from '../../src/native.js';
import type { Victim } from './floods.js';
import { Pace } from './pace.js';

/** A user whom the broker does not admit. */
const NOBODY = 65534;
/** Connections that stay open at a time. */
const OPEN = 200;

/** A program at work. */
export interface BrokerPeer {
  /** @param rate connections or requests a second */
  start(rate: number): void;
  /** Ends. @returns the connections or requests a second */
  stop(): number;
}

/** Does something to the broker at a rate. */
class Paced implements BrokerPeer {
  readonly #pace = new Pace();

  /** @param act @returns whether it could be done */
  constructor(readonly act: (n: number) => boolean) {}

  start(rate: number): void {
    this.#pace.start(rate, (first, count) => {
      let done = 0;
      while (done < count && this.act(first + done)) done++;
      return done;
    });
  }

  stop(): number {
    return this.#pace.stop();
  }
}

/** Opens connections, each of which sends a message at most, and closes the oldest. */
function connecting(messageOf: (n: number) => Uint8Array | undefined): BrokerPeer {
  const open: number[] = [];
  return new Paced((n) => {
    const fd = native().unix.connect(BROKER_NAME);
    if (fd < 0) return false;
    open.push(fd);
    const message = messageOf(n);
    if (message !== undefined) native().unix.send(fd, message, []);
    if (open.length > OPEN) native().closeFd(open.shift() as number);
    return true;
  });
}

const json = (message: unknown) => Buffer.from(JSON.stringify(message));
const joinOf = ({ target }: Victim) => ({
  ...{ id: 0, version: PROTOCOL_VERSION, type: 'join', onlyLocal: false },
  addresses: [{ address: target.address, scope: 0 }],
});

/** Messages of programs that do not keep to the protocol. */
const WRONG: readonly Uint8Array[] = [
  Buffer.alloc(0),
  Buffer.alloc(60_000, '['),
  Buffer.from('null'),
  ...[
    {},
    { id: 1, version: PROTOCOL_VERSION + 1, type: 'join', addresses: [] },
    { id: 1, version: PROTOCOL_VERSION, type: 'join', addresses: [{ address: 'nowhere', scope: -1 }] },
    { id: 1, version: PROTOCOL_VERSION, type: 'rejoin', slot: 1, secret: 'x'.repeat(60_000), services: [1, null] },
    { id: 1, version: PROTOCOL_VERSION, type: 'programs' },
    { id: { toString: 1 }, version: PROTOCOL_VERSION, type: ['join'] },
  ].map(json),
];

/** A program that joins, and then sends requests without end. */
function requesting(victim: Victim, requestOf: (n: number) => Message): BrokerPeer {
  let connection: BrokerConnection | undefined;
  return new Paced((n) => {
    connection ??= new BrokerConnection(native().unix.connect(BROKER_NAME), { onMessage() {}, onEnd() {} });
    if (n === 0) return connection.send(joinOf(victim)) && connection.send({ id: 1, type: 'socket', ...at(victim) });
    return connection.send({ id: n, ...requestOf(n) });
  });
}

const at = ({ target }: Victim) => ({ address: target.address, scope: 0 });

/** Becomes a user whom the broker does not admit. */
function asNobody<Peer>(peer: Peer): Peer {
  native();
  process.setuid?.(NOBODY);
  return peer;
}

/** The programs on the target's host. */
export const BROKER_PEERS = {
  'broker, silent connections': () => asNobody(connecting(() => undefined)),
  'broker, wrong messages': () => asNobody(connecting((n) => WRONG[n % WRONG.length])),
  'broker, joins': (victim) => connecting(() => json(joinOf(victim))),
  'broker, listeners': (victim) =>
    requesting(victim, (n) => ({
      type: n % 3000 < 1500 ? 'listen' : 'unlisten',
      service: (0x1_0106_0000 + (n % 1500)).toString(16),
      ...at(victim),
    })),
} satisfies Record<string, (victim: Victim) => BrokerPeer>;

/** Name of such a program. */
export type BrokerPeerName = keyof typeof BROKER_PEERS;
