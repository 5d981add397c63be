// Checks of a responder against the stock servers of perftest, each of which permits one operation, and of a requester
// against the stock server of rping, on rxe.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { rpingService } from '../../src/cli/probe/requesters.js';
import { perftestService } from '../../src/cli/probe/services.js';
import { LinkTarget } from '../../src/cli/probe/target.js';
import { RPING_PORT } from '../../src/cli/rping/protocol.js';
import { type Device, openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { describe } from '../../src/probe/packet/describe.js';
import { CHECKS, isPermitted, type Operation, runChecks, ScriptedLink } from '../../src/probe.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { findings } from './probe-findings.js';

const PORT = 18515;
/** Bytes of a ping: more than four packets. */
const PING_BYTES = 16_384 + 100;

/** Deviations of rxe from the specification, and checks that they make impossible. */
const KNOWN = [
  'deviates: migreq',
  'deviates: reserved-opcode',
  'deviates: rnr-drops-the-rest',
  'deviates: long-send',
  'deviates: credits',
  'deviates: duplicate-read',
  'deviates: cnp',
  'not applicable: cnp-layout',
  // the memory of a server of perftest has no end that is known
  'not applicable: no-write-right',
  'not applicable: write-over-end',
  'not applicable: read-over-end',
];

const ANSWERING = CHECKS.filter((check) => 'needs' in check);

const TOOLS: readonly (readonly [string, Operation])[] = [
  // ib_write_bw takes a second to start each time
  ['ib_write_lat -s 65536', 'WRITE'],
  ['ib_read_bw', 'READ'],
  ['ib_atomic_bw', 'ATOMIC'],
  ['ib_send_bw', 'SEND'],
];

describeWithRxe('probe of stock servers', 9000, (environment) => {
  let device: Device;
  let link: ScriptedLink;
  beforeAll(async () => {
    link = new ScriptedLink(PacketLink.open({ interface: CARD.interface }));
    device = await openDevice({ link });
  }, 60_000);
  afterAll(() => device?.close({ force: true }));

  test.each(TOOLS)(
    '%s in a loop has the known deviations, and no others',
    async (tool, operation) => {
      const { guest } = environment;
      const server = guest.spawn(`while :; do ${tool} -p ${PORT}; done`);
      try {
        await guest.listening(PORT);
        const service = perftestService({ host: GUEST.ipv4, port: PORT, timeoutMs: 40_000 });
        const target = new LinkTarget({ device, link, services: [service] });
        const others: string[] = [];
        const reached: string[] = [];
        for await (const { name, verdict, text, evidence } of runChecks(ANSWERING, target, { isIntrusive: true })) {
          if (verdict !== 'not reachable') reached.push(name);
          if (verdict === 'pass' || verdict === 'not reachable' || KNOWN.includes(`${verdict}: ${name}`)) continue;
          const packets = evidence.map(({ direction, frame }) => `  ${direction} ${describe(frame)}`);
          others.push(`${verdict}: ${name}: ${text}`, ...packets);
        }
        expect([target.missing, others]).toEqual([[], []]);
        expect(reached.toSorted()).toEqual(
          ANSWERING.filter(({ needs }) => isPermitted(needs, [operation]))
            .map(({ name }) => name)
            .toSorted(),
        );
      } finally {
        await server.kill();
      }
    },
    180_000,
  );

  test('ib_write_bw in a loop', async () => {
    const { guest } = environment;
    const server = guest.spawn(`while :; do ib_write_bw -p ${PORT}; done`);
    try {
      await guest.listening(PORT);
      const service = perftestService({ host: GUEST.ipv4, port: PORT, timeoutMs: 40_000 });
      const target = new LinkTarget({ device, link, services: [service] });
      const some = ANSWERING.filter(({ name }) => ['psn-gap', 'duplicate-write', 'duplicate-read'].includes(name));
      const found: string[] = [];
      for await (const { name, verdict } of runChecks(some, target)) found.push(`${name}: ${verdict}`);
      expect(found).toEqual(['duplicate-write: pass', 'duplicate-read: not reachable', 'psn-gap: pass']);
    } finally {
      await server.kill();
    }
  });

  test('the server of rping sends the requests of a check', async () => {
    await using _server = environment.guest.spawn(['rping', '-s', '-P', '-a', '0.0.0.0', '-S', String(PING_BYTES)]);
    await environment.guest.listening(RPING_PORT, 'rdma');
    const rping = rpingService({ host: GUEST.ipv4, port: RPING_PORT, timeoutMs: 10_000 }, PING_BYTES);
    const target = new LinkTarget({ device, link, services: [], requesters: [rping] });
    const asking = CHECKS.filter((check) => 'asks' in check);
    const { found, packets } = await findings(target, asking);
    expect(found, packets).toEqual([
      'not applicable: ack-of-several: it sends one message at a time',
      'deviates: future-ack: after an ACK of the future a message without ACK is not sent again',
      'not applicable: no-credits: the connection has no flow control',
      expect.stringMatching(/^deviates: read-response-lost: the READ is repeated after /),
      'deviates: retry-count: the retransmissions have no end',
      'not applicable: cnp-rate: it sends one message at a time',
    ]);
  }, 180_000);
});
