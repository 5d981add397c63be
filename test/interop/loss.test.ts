// A bad network between our card and rxe: both ends recover from lost, duplicated, delayed, reordered and corrupted
// packets, in either role, with every byte right and every atomic executed once.
import { expect, test } from 'vitest';
import type { Counters } from '../../src/index.js';
import type { FaultOptions } from '../../src/link/fault/options.js';
import { type LinkKind, OurDevice } from './card.js';
import { rxeCounters } from './counters.js';
import type { EndOptions } from './end.js';
import { corners, describeWithRxe } from './environment.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES, type Family } from './pair.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';

type Asker = 'our card' | 'rxe' | 'both';

const OPTIONS: EndOptions = { size: TRAFFIC_SIZE, retry: 7, rdAtomic: 8, destRdAtomic: 8 };
/**
 * ACK timeouts. rxe has 67 ms, because it recovers many losses only by this timer; its retry count of 7 is unlimited.
 * We have 268 ms: 8 attempts outlast a guest that gets no processor for two seconds.
 */
const EACH = { card: { timeout: 16 }, rxe: { timeout: 14 } } as const;

interface Trouble {
  readonly name: string;
  /** Faults at our end. */
  readonly faults?: FaultOptions;
  /** Options of netem at the guest's end, for the packets that it sends. */
  readonly netem?: string;
  /**
   * Our responses may be reordered. rxe posts no READs then: if a READ response arrives after rxe has sent the request
   * again, or an old ACK arrives among READ responses, rxe flushes the READ or completes it with bytes missing,
   * although every response has the right bytes for its PSN (seen with 6.12; a real path keeps the order of a
   * connection).
   */
  readonly isLate?: boolean;
  /** Our counters that must be non-zero when we are the requester, and when rxe is. */
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

describeWithRxe('a bad network between our card and rxe', 9000, (environment) => {
  const all = TROUBLES.flatMap((trouble) =>
    LINKS.flatMap((link) => (['our card', 'rxe', 'both'] as const).map((asker) => [trouble, ...link, asker] as const)),
  );
  const rows = corners(all, ([trouble, link, , , asker]) => {
    const one = TROUBLES.indexOf(trouble) % 2 === 0 ? 'our card' : 'rxe';
    return asker === (link === 'packet' ? 'both' : one);
  });
  for (const [trouble, link, family, mtu, asker] of rows)
    test(`${trouble.name}: link ${link}, ${family}, path MTU ${mtu}, requester: ${asker}`, async () => {
      const { faults, netem } = trouble;
      await using ours = await OurDevice.open(link, { ...(faults && { faults }) });
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { ...OPTIONS, mtu }, EACH);
      const { card, rxe } = pair;
      const before = await rxeCounters(environment.guest);
      if (netem) await environment.guest.run(`tc qdisc add dev eth0 root netem limit 10000 ${netem}`);
      try {
        const outward = [card, rxe] as const;
        const inward = [rxe, card] as const;
        const directions = asker === 'both' ? [outward, inward] : asker === 'rxe' ? [inward] : [outward];
        const options = trouble.isLate ? { withoutReads: [rxe] } : {};
        // a few dozen packets may escape all faults by chance; ten rounds of them do not
        for (let round = 0; round < 10; round++) {
          await exchange(directions, options);
          if (uncounted(trouble, asker, ours.device.counters()).length === 0) break;
        }
      } finally {
        if (netem) await environment.guest.run('tc qdisc del dev eth0 root');
      }
      const counters = ours.device.counters();
      expect(uncounted(trouble, asker, counters)).toEqual([]);
      for (const name of FAILURES) expect(counters[name], name).toBe(0);
      const after = await rxeCounters(environment.guest);
      expect(after.retry_exceeded_err).toBe(before.retry_exceeded_err);
    });
});

const FAILURES = ['retry_exceeded_err', 'retry_rnr_exceeded_err', 'req_cqe_error', 'resp_cqe_error', 'cq_overrun'];

/** Returns the counters that are still zero. */
function uncounted({ asking, asked }: Trouble, asker: Asker, counters: Counters): string[] {
  const wanted = [...(asker === 'rxe' ? [] : asking), ...(asker === 'our card' ? [] : asked)];
  return wanted.filter((name) => !((counters[name] ?? 0) > 0));
}
