// What the network sees of us and of rxe, judged by others than the card: Wireshark finds no packet malformed, and the
// second implementation of the ICRC agrees with every packet of both ends, whatever wrote the IP header.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { decode, isRoce } from '../kit/decode.js';
import { describe as inWords } from '../kit/describe.js';
import { readCapture } from '../kit/pcap.js';
import { all, programPrivilege, testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { OurDevice } from './card.js';
import { rxeCounters } from './counters.js';
import { CARD } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES, type Family } from './pair.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';
import { describeWithRxe, FAMILY_NAMES, LINKS, type World } from './world.js';

/** Both directions at once, an RNR NAK each way and a NAK each way. */
async function everything({ guest }: World, ours: OurDevice, family: Family): Promise<void> {
  await using peer = await Peer.start(guest, FAMILIES[family].gid);
  await using pair = await connectPair({ ours, peer, family }, { size: TRAFFIC_SIZE });
  const { card, rxe } = pair;
  const directions = [
    [card, rxe],
    [rxe, card],
  ] as const;
  await exchange(directions);
  for (const [from, to] of directions) {
    await from.postSend({ op: 'send_imm', pieces: [[0, 3]], imm: 1 });
    await sleep(20);
    await to.postRecv([[0, 3]]);
    expect(await to.completions(1)).toMatchObject([{ status: WcStatus.SUCCESS, imm: 1 }]);
    expect(await from.completions(1)).toMatchObject([{ status: WcStatus.SUCCESS }]);
  }
  for (const index of [0, 1]) {
    await using second = await connectPair({ ours, peer, family });
    const [from, to] = index === 0 ? [second.card, second.rxe] : [second.rxe, second.card];
    await from.postSend({ op: 'write', pieces: [[0, 3]], offset: 0, rkey: to.introduction.rkey ^ 0x33 });
    expect(await from.completions(1)).toMatchObject([{ status: WcStatus.REM_ACCESS_ERR }]);
  }
}

/** What is wrong with the ICRC of any packet; and that there are packets of both ends, with NAKs. */
function expectSound(file: string, family: Family): number {
  const frames = readCapture(file).packets.filter(({ data }) => isRoce(data));
  const decoded = frames.map(({ data }) => decode(data));
  const wrong = frames.filter((_, i) => !decoded[i]?.icrcOk).map(({ data }) => inWords(data));
  expect(wrong).toEqual([]);
  for (const address of [FAMILIES[family].guest, family === 'IPv4' ? CARD.ipv4 : CARD.ipv6]) {
    const sent = decoded.filter(({ ip }) => ip.src === address);
    expect(sent.length).toBeGreaterThan(200);
    expect(sent.filter(({ aeth }) => aeth?.syndrome === 0x62)).toHaveLength(1);
  }
  return decoded.length;
}

/** Wireshark's view of the same file: nothing malformed, the same operations and PSNs in the same order. */
async function expectWiresharkPleased(file: string): Promise<void> {
  expect(await tsharkMalformed(file)).toEqual([]);
  const rows = await tsharkFields(
    file,
    ['infiniband.bth.opcode', 'infiniband.bth.psn', 'infiniband.bth.destqp'],
    'infiniband',
  );
  const ours = readCapture(file)
    .packets.filter(({ data }) => isRoce(data))
    .map(({ data }) => decode(data).bth);
  expect(rows.map((row) => row.map(Number))).toEqual(ours.map(({ opcode, psn, destQp }) => [opcode, psn, destQp]));
}

/** tcpdump on our interface: what the kernel really put on the wire. It is told that the interface takes no super-packets, or
 * they would be seen whole, before it has made packets of them. */
async function recordWire(file: string): Promise<() => Promise<void>> {
  execFileSync('ip', ['link', 'set', CARD.interface, 'gso_max_segs', '1']);
  const words = [
    '-Z',
    'root',
    '-U',
    '--immediate-mode',
    '-B',
    '16384',
    '-i',
    CARD.interface,
    '-w',
    file,
    'udp',
    'port',
    '4791',
  ];
  const child = spawn('tcpdump', words, { stdio: ['ignore', 'ignore', 'pipe'] });
  const closed = once(child, 'close');
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.stderr.on('data', (data: Buffer) => {
      said += data;
      if (said.includes('listening on')) resolve();
    });
    void closed.then(() => reject(new Error(`tcpdump: ${said}`)));
  });
  return async () => {
    await sleep(200);
    child.kill('SIGINT');
    await closed;
    execFileSync('ip', ['link', 'set', CARD.interface, 'gso_max_segs', '65535']);
    expect(said).toMatch(/^0 packets dropped by kernel$/m);
  };
}

describeWithRxe('captures of our card and rxe', 1500, (world) => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  testIf(
    tsharkPrivilege(),
    'the pcap of a device on the packet link, IPv4 and IPv6: every ICRC right, none malformed',
    async () => {
      for (const family of FAMILY_NAMES) {
        const file = join(folder, `packet-${family}.pcapng`);
        let frames: number | undefined;
        {
          await using ours = await OurDevice.open('packet', { pcap: file });
          await everything(world, ours, family);
          frames = ours.device.counters()['link.pcap_frames'];
        }
        expect(expectSound(file, family)).toBe(frames);
        await expectWiresharkPleased(file);
      }
    },
  );

  testIf(
    all(tsharkPrivilege(), programPrivilege('tcpdump')),
    'the wire under the udp link, IPv4 and IPv6: every ICRC right with the header that the kernel wrote, none malformed',
    async () => {
      for (const family of FAMILY_NAMES) {
        const file = join(folder, `udp-${family}.pcap`);
        const stop = await recordWire(file);
        {
          await using ours = await OurDevice.open('udp');
          await everything(world, ours, family);
          expect(ours.device.counters()['link.tx_runs']).toBeGreaterThan(0);
        }
        await stop();
        expectSound(file, family);
        await expectWiresharkPleased(file);
      }
    },
  );

  test.each(LINKS.flatMap((link) => FAMILY_NAMES.map((family) => [link, family] as const)))(
    'link %s, %s: neither end drops a packet of the other for its ICRC',
    async (link, family) => {
      await using ours = await OurDevice.open(link);
      await using peer = await Peer.start(world.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { size: TRAFFIC_SIZE });
      const before = await rxeCounters(world.guest);
      await exchange([
        [pair.card, pair.rxe],
        [pair.rxe, pair.card],
      ]);
      // A completion says nothing of frames after it: an answer to a repeat may still be on its way.
      await vi.waitFor(
        async () => {
          const after = await rxeCounters(world.guest);
          const rxe = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
          const { sent_pkts, rcvd_pkts } = ours.device.counters();
          expect({ sent_pkts, rcvd_pkts }).toEqual({ sent_pkts: rxe('rcvd_pkts'), rcvd_pkts: rxe('sent_pkts') });
        },
        { timeout: 10_000, interval: 100 },
      );
      const counters = ours.device.counters();
      expect(counters.drop_icrc).toBe(0);
      expect(counters.sent_pkts).toBeGreaterThan(300);
      expect(counters['link.tx_run_frames']).toBeGreaterThan(100);
    },
  );
});
