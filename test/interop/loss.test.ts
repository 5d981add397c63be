// A bad network between our card and rxe: what is lost, doubled, late, out of order or damaged is made good, in either
// role, with every byte right and every atomic carried out once.
import { expect, test } from 'vitest';
import type { Counters } from '../../src/index.js';
import type { FaultOptions } from '../../src/link/fault.js';
import { type LinkKind, OurDevice } from './card.js';
import { rxeCounters } from './counters.js';
import type { EndOptions } from './end.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES, type Family } from './pair.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';
import { describeWithRxe } from './world.js';

type Asker = 'our card' | 'rxe' | 'both';

/** An ACK timeout of 67 ms, so that a lost last packet costs little; 7 retries without progress (rxe: without end). */
const OPTIONS: EndOptions = { size: TRAFFIC_SIZE, timeout: 14, retry: 7, rdAtomic: 8, destRdAtomic: 8 };

interface Trouble {
  readonly name: string;
  /** At our end of the cable. */
  readonly faults?: FaultOptions;
  /** At the guest's end, for what it sends. */
  readonly netem?: string;
  /**
   * Answers of ours may arrive after younger ones. rxe asks for no READs then: a READ response that is so late that rxe
   * has asked again, or an old ACK among READ responses, makes it flush the READ or end it with bytes missing, though
   * every response carries the right bytes for its PSN (seen with 6.12; a real path keeps the order of a connection).
   */
  readonly isLate?: boolean;
  /** Our counters that must have counted when we ask, and when rxe does. */
  readonly asking: readonly string[];
  readonly asked: readonly string[];
}

const TROUBLES: readonly Trouble[] = [
  { name: 'rxe loses 5 % of what it sends', netem: 'loss 5%', asking: ['retransmits'], asked: ['out_of_seq_request'] },
  {
    name: 'we lose 5 % of what we send and receive',
    faults: { seed: 5, both: { drop: 0.05 } },
    asking: ['retransmits', 'rcvd_seq_err', 'implied_nak_seq_err'],
    asked: ['out_of_seq_request', 'duplicate_request'],
  },
  {
    name: 'everything comes twice',
    faults: { seed: 6, both: { duplicate: 1 } },
    asking: ['drop_ghost_response'],
    asked: ['duplicate_request'],
  },
  {
    name: '5 % are overtaken, 5 % late by up to 2 ms',
    faults: { seed: 7, both: { reorder: 0.05, delay: 0.05, delayNs: [100_000, 2_000_000] } },
    isLate: true,
    asking: ['retransmits'],
    asked: ['out_of_seq_request'],
  },
  {
    name: '5 % have a wrong bit',
    faults: { seed: 8, both: { corrupt: 0.05 } },
    asking: ['retransmits', 'drop_icrc'],
    asked: ['out_of_seq_request', 'drop_icrc'],
  },
  {
    name: '2 % of each, and rxe loses 2 %',
    faults: { seed: 9, both: { drop: 0.02, duplicate: 0.02, reorder: 0.02, delay: 0.02, corrupt: 0.02 } },
    netem: 'loss 2%',
    isLate: true,
    asking: ['retransmits'],
    asked: ['out_of_seq_request', 'duplicate_request'],
  },
];

const LINKS: readonly [LinkKind, Family, number][] = [
  ['packet', 'IPv4', 1024],
  ['udp', 'IPv6', 4096],
];

describeWithRxe('a bad network between our card and rxe', 9000, (world) => {
  const rows = TROUBLES.flatMap((trouble) =>
    LINKS.flatMap((link) => (['our card', 'rxe', 'both'] as const).map((asker) => [trouble, ...link, asker] as const)),
  );
  for (const [trouble, link, family, mtu, asker] of rows)
    test(`${trouble.name}: link ${link}, ${family}, path MTU ${mtu}, asking: ${asker}`, async () => {
      const { faults, netem } = trouble;
      await using ours = await OurDevice.open(link, { ...(faults && { faults }) });
      await using peer = await Peer.start(world.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { ...OPTIONS, mtu });
      const { card, rxe } = pair;
      const before = await rxeCounters(world.guest);
      if (netem) await world.guest.run(`tc qdisc add dev eth0 root netem limit 10000 ${netem}`);
      try {
        const outward = [card, rxe] as const;
        const inward = [rxe, card] as const;
        const directions = asker === 'both' ? [outward, inward] : asker === 'rxe' ? [inward] : [outward];
        const options = trouble.isLate ? { withoutReads: [rxe] } : {};
        // chance may spare a few dozen packets; it will not do so ten times
        for (let round = 0; round < 10; round++) {
          await exchange(directions, options);
          if (uncounted(trouble, asker, ours.device.counters()).length === 0) break;
        }
      } finally {
        if (netem) await world.guest.run('tc qdisc del dev eth0 root');
      }
      const counters = ours.device.counters();
      expect(uncounted(trouble, asker, counters)).toEqual([]);
      for (const name of FAILURES) expect(counters[name], name).toBe(0);
      const after = await rxeCounters(world.guest);
      expect(after.retry_exceeded_err).toBe(before.retry_exceeded_err);
    });
});

const FAILURES = ['retry_exceeded_err', 'retry_rnr_exceeded_err', 'req_cqe_error', 'resp_cqe_error', 'cq_overrun'];

/** What should have counted by now and has not. */
function uncounted({ asking, asked }: Trouble, asker: Asker, counters: Counters): string[] {
  const wanted = [...(asker === 'rxe' ? [] : asking), ...(asker === 'our card' ? [] : asked)];
  return wanted.filter((name) => !((counters[name] ?? 0) > 0));
}
