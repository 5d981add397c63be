// Packets of our card and of rxe as captured on the network, checked independently of the card: Wireshark finds no
// packet malformed, and the second implementation of the ICRC agrees with every packet of both ends, with every kind of
// IP header.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WcStatus } from '../../src/index.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { decode, isRoce } from '../../src/probe/packet/decode.js';
import { describe as inWords } from '../../src/probe/packet/describe.js';
import { eventually } from '../kit/eventually.js';
import { all, programPrivilege, testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { OurDevice } from './card.js';
import { rxeCounters } from './counters.js';
import { describeWithRxe, type Environment, FAMILY_NAMES, LINKS } from './environment.js';
import { CARD } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES, type Family } from './pair.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';

/** Traffic in both directions at once, and one RNR NAK and one NAK in each direction. */
async function everything({ guest }: Environment, ours: OurDevice, family: Family): Promise<void> {
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

/** Expects a correct ICRC in every packet, and packets of both ends, with NAKs. @returns the number of packets */
function expectCorrectIcrc(file: string, family: Family): number {
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

/** Expects that Wireshark finds nothing malformed in the file, and the same operations and PSNs in the same order. */
async function expectWiresharkAccepts(file: string): Promise<void> {
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

/**
 * Runs tcpdump on our interface, which shows the packets that the kernel put on the wire. Segmentation offload of the
 * interface is off, because tcpdump would otherwise record super-packets before the kernel divides them.
 */
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

describeWithRxe('captures of our card and rxe', 1500, (environment) => {
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
          await everything(environment, ours, family);
          frames = ours.device.counters()['link.pcap_frames'];
        }
        expect(expectCorrectIcrc(file, family)).toBe(frames);
        await expectWiresharkAccepts(file);
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
          await everything(environment, ours, family);
          expect(ours.device.counters()['link.tx_gso_bursts']).toBeGreaterThan(0);
        }
        await stop();
        expectCorrectIcrc(file, family);
        await expectWiresharkAccepts(file);
      }
    },
  );

  test.each(LINKS.flatMap((link) => FAMILY_NAMES.map((family) => [link, family] as const)))(
    'link %s, %s: neither end drops a packet of the other for its ICRC',
    async (link, family) => {
      await using ours = await OurDevice.open(link);
      await using peer = await Peer.start(environment.guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { size: TRAFFIC_SIZE });
      const before = await rxeCounters(environment.guest);
      await exchange([
        [pair.card, pair.rxe],
        [pair.rxe, pair.card],
      ]);
      // Frames may follow the last completion: the response to a retransmitted request can still be in flight.
      await eventually(async () => {
        const after = await rxeCounters(environment.guest);
        const rxe = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
        const { sent_pkts, rcvd_pkts, ...others } = ours.device.counters();
        // After a retransmission, the second response is a ghost: a frame that came, but is not in rcvd_pkts.
        const dropped = Object.entries(others).filter(([name]) => name.startsWith('drop_'));
        const came = dropped.reduce((sum, [, frames]) => sum + frames, rcvd_pkts);
        expect({ sent_pkts, came, dropped }).toEqual({
          sent_pkts: rxe('rcvd_pkts'),
          came: rxe('sent_pkts'),
          dropped,
        });
      });
      const counters = ours.device.counters();
      expect(counters.drop_icrc).toBe(0);
      expect(counters.sent_pkts).toBeGreaterThan(300);
      expect(counters['link.tx_gso_frames']).toBeGreaterThan(100);
    },
  );
});
