/** Refused and ended connections with stock programs of rdma-core, and every CM message of them on the wire. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, describe as group, test } from 'vitest';
import { MadAgent } from '../../src/cm/madagent.js';
import { eventually } from '../kit/eventually.js';
import { testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from '../kit/tshark.js';
import { OurDevice } from './card.js';
import { ADDRESSES, asked, listening, PATIENCE, resolved } from './cm-end.js';
import { describeWithRxe, type Environment, FAMILY_NAMES, LINKS } from './environment.js';
import type { Family } from './pair.js';
import { INBOX, MESSAGE, ping, pong } from './rping.js';

/** Attribute ids (IBTA 12.6): REQ, MRA, REJ, REP, RTU, DREQ, DREP. */
const MESSAGES = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
/** Ports: one without a listener, and those of the stock programs. */
const [NOBODY, RPING, UCMATOSE] = [7999, 7174, 7471];

/** A device of ours that connects to programs of the guest, and to which they connect. */
interface Setup {
  readonly environment: Environment;
  readonly our: OurDevice;
  readonly family: Family;
  /**
   * Every frame arrives twice. A request whose duplicate arrives before it is accepted or rejected is answered by MRA.
   */
  readonly isTwice?: boolean;
}

/** Waits for one more MRA in a direction if every frame arrives twice. */
async function mra({ our, isTwice }: Setup, direction: 'tx' | 'rx'): Promise<void> {
  if (!isTwice) return;
  const port = await MadAgent.of(our.device);
  const count = () => port.counters()[`cm_${direction}_msgs.mra`] ?? 0;
  const before = count();
  await eventually(() => expect(count()).toBeGreaterThan(before));
}

const CASES: Readonly<Record<string, (setup: Setup) => Promise<void>>> = {
  async 'nobody listens in the guest'({ our, family }) {
    await using end = await resolved(our, ADDRESSES[family].guest, NOBODY);
    await expect(end.id.connect()).rejects.toMatchObject({ code: 'ECONNREFUSED', reason: 'INVALID_SERVICE_ID' });
  },

  async 'nobody listens here'({ environment, our, family }) {
    // a device that has never listened or connected does not answer CM messages
    await MadAgent.of(our.device);
    const command = ['rping', '-c', '-a', ADDRESSES[family].card, '-p', String(NOBODY), '-C', '1'];
    const { status, stdout, stderr } = await environment.guest.exec(command, PATIENCE);
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 8');
  },

  // ucmatose takes one connection, waits for its messages, and rejects requests that arrived meanwhile
  async 'a program of the guest refuses'(setup) {
    const { environment, our, family } = setup;
    const { guest } = ADDRESSES[family];
    const server = environment.guest.spawn(['ucmatose', '-b', guest, '-C', '1']);
    await environment.guest.listening(UCMATOSE, 'rdma');
    await using first = await resolved(our, guest, UCMATOSE);
    await using second = await resolved(our, guest, UCMATOSE);
    first.receive(0, 100);
    await first.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await first.completion();
    const ids = () => environment.guest.run('rdma resource show cm_id | wc -l');
    const before = Number(await ids());
    const refused = expect(second.id.connect()).rejects;
    const delayed = mra(setup, 'rx');
    // the guest's kernel has the second request before its program receives the message it waits for
    while (Number(await ids()) <= before);
    await delayed;
    first.send(1024, 100);
    await refused.toMatchObject({ code: 'ECONNREFUSED', reason: 'CONSUMER_DEFINED' });
    await first.event('DISCONNECTED');
    expect((await server.exited).status).not.toBe(0);
  },

  async 'our program refuses'(setup) {
    const { environment, our, family } = setup;
    const listener = await listening(our, RPING);
    const client = environment.guest.exec(['rping', '-c', '-a', ADDRESSES[family].card, '-C', '1'], PATIENCE);
    const request = await listener.getRequest({ timeout: 20_000 });
    await mra(setup, 'tx');
    await request.reject();
    const { status, stdout, stderr } = await client;
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 28');
    await request.close();
    await listener.close();
  },

  async 'we leave as client'({ environment, our, family }) {
    const { guest, any } = ADDRESSES[family];
    const server = environment.guest.spawn(['rping', '-s', '-a', any, '-C', '1']);
    await environment.guest.listening(RPING, 'rdma');
    await using end = await resolved(our, guest, RPING);
    end.receive(INBOX, MESSAGE);
    await end.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await ping(end, 1);
    await end.id.disconnect();
    // The server may not exit: on a busy machine one of its threads destroys the id while the other holds an event of
    // it, and then waits forever (both are in a futex, and the queue pair is gone).
    await eventually(() => expect(server.stderr).toContain('server DISCONNECT EVENT'));
    await server.kill();
  },

  async 'the client leaves us'({ environment, our, family }) {
    const listener = await listening(our, RPING);
    const client = environment.guest.run(['rping', '-c', '-a', ADDRESSES[family].card, '-C', '1'], PATIENCE);
    await using end = await asked(listener);
    end.receive(INBOX, MESSAGE);
    await end.id.accept();
    await pong(end, 1);
    await end.event('DISCONNECTED');
    await client;
    await listener.close();
  },

  async 'we leave as server'({ environment, our, family }) {
    const listener = await listening(our, UCMATOSE);
    const client = environment.guest.run(['ucmatose', '-s', ADDRESSES[family].card, '-C', '0'], PATIENCE);
    await using end = await asked(listener);
    await end.id.accept();
    await end.id.disconnect();
    await client;
    await listener.close();
  },

  async 'the server leaves us'({ environment, our, family }) {
    const { guest } = ADDRESSES[family];
    const server = environment.guest.spawn(['ucmatose', '-b', guest, '-C', '0']);
    await environment.guest.listening(UCMATOSE, 'rdma');
    await using end = await resolved(our, guest, UCMATOSE);
    await end.id.connect({ responderResources: 1, initiatorDepth: 1 });
    await end.event('DISCONNECTED');
    expect((await server.exited).status).toBe(0);
  },
};

describeWithRxe('ends of connections', 1500, (environment) => {
  const rows = LINKS.flatMap((link) => FAMILY_NAMES.map((family) => [link, family] as const));
  group.each(rows)('link %s, %s', (link, family) => {
    test.each(Object.entries(CASES))('%s', async (_, way) => {
      await using our = await OurDevice.open(link);
      await way({ environment, our, family });
    });
  });

  group('packets on the wire', () => {
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
            for (const way of Object.values(CASES)) await way({ environment, our, family, isTwice: true });
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
