/** How connections with stock programs of rdma-core do not come about, and how they end; and every message of it on the wire. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, describe as group, test, vi } from 'vitest';
import { CmPort } from '../../src/cm/port.js';
import { testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { OurDevice } from './card.js';
import type { Family } from './pair.js';
import { INBOX, MESSAGE, ping, pong } from './rping.js';
import { ADDRESSES, asked, listening, PATIENCE, resolved } from './side.js';
import { describeWithRxe, FAMILY_NAMES, LINKS, type World } from './world.js';

/** Attribute ids (IBTA 12.6): REQ, MRA, REJ, REP, RTU, DREQ, DREP. */
const MESSAGES = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
/** Ports. */
const [NOBODY, RPING, UCMATOSE] = [7999, 7174, 7471];

/** A device of ours that connects with the guest's programs, and is asked by them. */
interface Meeting {
  readonly world: World;
  readonly our: OurDevice;
  readonly family: Family;
  /** Every frame comes twice, the second time a little later: a request that is still undecided then is answered by MRA. */
  readonly isTwice?: boolean;
}

/** Until one more MRA has gone or come, where all comes twice. */
async function mra({ our, isTwice }: Meeting, direction: 'tx' | 'rx'): Promise<void> {
  if (!isTwice) return;
  const port = await CmPort.of(our.device);
  const count = () => port.counters()[`cm_${direction}_msgs.mra`] ?? 0;
  const before = count();
  await vi.waitFor(() => expect(count()).toBeGreaterThan(before), { timeout: 10_000 });
}

const WAYS: Readonly<Record<string, (meeting: Meeting) => Promise<void>>> = {
  async 'nobody listens in the guest'({ our, family }) {
    await using side = await resolved(our, ADDRESSES[family].guest, NOBODY);
    await expect(side.id.connect()).rejects.toMatchObject({ code: 'ECONNREFUSED', reason: 'INVALID_SERVICE_ID' });
  },

  async 'nobody listens here'({ world, our, family }) {
    // a device that has never listened or connected says nothing
    await CmPort.of(our.device);
    const command = ['rping', '-c', '-a', ADDRESSES[family].card, '-p', String(NOBODY), '-C', '1'];
    const { status, stdout, stderr } = await world.guest.exec(command, PATIENCE);
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 8');
  },

  // ucmatose takes one connection, looks for its messages, and refuses what has come meanwhile
  async 'a program of the guest refuses'(meeting) {
    const { world, our, family } = meeting;
    const { guest } = ADDRESSES[family];
    const server = world.guest.spawn(['ucmatose', '-b', guest, '-C', '1']);
    await world.guest.listening(UCMATOSE, 'rdma');
    await using first = await resolved(our, guest, UCMATOSE);
    await using second = await resolved(our, guest, UCMATOSE);
    first.receive(0, 100);
    await first.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await first.completion();
    const ids = () => world.guest.run('rdma resource show cm_id | wc -l');
    const before = Number(await ids());
    const refused = expect(second.id.connect()).rejects;
    const delayed = mra(meeting, 'rx');
    // the guest knows of the second request before its program has what it waits for
    while (Number(await ids()) <= before);
    await delayed;
    first.send(1024, 100);
    await refused.toMatchObject({ code: 'ECONNREFUSED', reason: 'CONSUMER_DEFINED' });
    await first.event('DISCONNECTED');
    expect((await server.exited).status).not.toBe(0);
  },

  async 'our program refuses'(meeting) {
    const { world, our, family } = meeting;
    const listener = await listening(our, RPING);
    const client = world.guest.exec(['rping', '-c', '-a', ADDRESSES[family].card, '-C', '1'], PATIENCE);
    const request = await listener.getRequest({ timeout: 20_000 });
    await mra(meeting, 'tx');
    await request.reject();
    const { status, stdout, stderr } = await client;
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 28');
    await request.close();
    await listener.close();
  },

  async 'we leave as client'({ world, our, family }) {
    const { guest, any } = ADDRESSES[family];
    const server = world.guest.spawn(['rping', '-s', '-a', any, '-C', '1']);
    await world.guest.listening(RPING, 'rdma');
    await using side = await resolved(our, guest, RPING);
    side.receive(INBOX, MESSAGE);
    await side.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await ping(side, 1);
    await side.id.disconnect();
    // Its end is not awaited: on a busy machine one of its threads takes its id away while the other has an event of it, which
    // then waits for ever (both are in a futex, and the queue pair is gone).
    await vi.waitFor(() => expect(server.stderr).toContain('server DISCONNECT EVENT'), { timeout: 20_000 });
    await server.kill();
  },

  async 'the client leaves us'({ world, our, family }) {
    const listener = await listening(our, RPING);
    const client = world.guest.run(['rping', '-c', '-a', ADDRESSES[family].card, '-C', '1'], PATIENCE);
    await using side = await asked(listener);
    side.receive(INBOX, MESSAGE);
    await side.id.accept();
    await pong(side, 1);
    await side.event('DISCONNECTED');
    await client;
    await listener.close();
  },

  async 'we leave as server'({ world, our, family }) {
    const listener = await listening(our, UCMATOSE);
    const client = world.guest.run(['ucmatose', '-s', ADDRESSES[family].card, '-C', '0'], PATIENCE);
    await using side = await asked(listener);
    await side.id.accept();
    await side.id.disconnect();
    await client;
    await listener.close();
  },

  async 'the server leaves us'({ world, our, family }) {
    const { guest } = ADDRESSES[family];
    const server = world.guest.spawn(['ucmatose', '-b', guest, '-C', '0']);
    await world.guest.listening(UCMATOSE, 'rdma');
    await using side = await resolved(our, guest, UCMATOSE);
    await side.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await side.event('DISCONNECTED');
    expect((await server.exited).status).toBe(0);
  },
};

describeWithRxe('ends of connections', 1500, (world) => {
  const rows = LINKS.flatMap((link) => FAMILY_NAMES.map((family) => [link, family] as const));
  group.each(rows)('link %s, %s', (link, family) => {
    test.each(Object.entries(WAYS))('%s', async (_, way) => {
      await using our = await OurDevice.open(link);
      await way({ world, our, family });
    });
  });

  group('on the wire', () => {
    let folder: string;
    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
    });
    afterAll(() => rmSync(folder, { recursive: true, force: true }));

    const later = [50e6, 50e6] as const;
    const faults = { both: { duplicate: 1, delay: 1, delayNs: later } };

    testIf(
      tsharkPrivilege(),
      'all of it once more, with every frame twice: none malformed, MRA both ways',
      async () => {
        const pcap = join(folder, 'ends.pcapng');
        {
          await using our = await OurDevice.open('packet', { faults, pcap });
          for (const family of FAMILY_NAMES)
            for (const way of Object.values(WAYS)) await way({ world, our, family, isTwice: true });
        }
        expect(await tsharkMalformed(pcap)).toEqual([]);
        const messages = await tsharkFields(
          pcap,
          ['ip.src', 'ipv6.src', 'infiniband.mad.attributeid'],
          'infiniband.mad.mgmtclass == 7',
        );
        for (const family of FAMILY_NAMES)
          for (const end of ['card', 'guest'] as const) {
            const address = ADDRESSES[family][end];
            const sent = messages.filter(([ipv4, ipv6]) => (ipv4 || ipv6) === address).map(([, , id]) => Number(id));
            expect([...new Set(sent)].sort()).toEqual(MESSAGES);
          }
      },
    );
  });
});
