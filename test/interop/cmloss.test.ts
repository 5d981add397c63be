// rdma_cm with the stock programs over a link that loses, duplicates and reorders frames: any CM message of a
// connection can be lost, and is sent again.
import { setTimeout as wait } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { MadAgent } from '../../src/cm/madagent.js';
import { type CmId, createCmId, type Device, type Mr, type Pd, throwIfFailed } from '../../src/index.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';

const FAULTS = { drop: 0.12, duplicate: 0.1, reorder: 0.1 };
const CONNECTIONS = 4;
const BYTES = 100;
const PATIENCE = { timeout: 100_000 };
/** Time in which rxe repeats a request at least five times (ms). */
const QUIET_MS = 3000;
const OURS = 7471;
const THEIRS = 7472;

/**
 * One connection of ucmatose with one message in each direction.
 * @param peerLeaves the peer disconnects once it has our message. If its ACK is lost, its DREQ may arrive first; its
 * exit status then confirms that the message arrived.
 */
async function converse(
  id: CmId,
  pd: Pd,
  mr: Mr,
  join: () => Promise<unknown>,
  { peerLeaves }: { peerLeaves: boolean },
): Promise<void> {
  const cq = await id.device.createCq({ cqe: 8 });
  const qp = await id.createQp(pd, { sendCq: cq, maxSendWr: 4, maxRecvWr: 4 });
  qp.postRecv({ wrId: 1, sgList: mr.sge(0, BYTES) });
  await join();
  qp.postSend({ wrId: 2, opcode: 'SEND', sgList: mr.sge(BYTES, BYTES) });
  for (let i = 0; i < 2; i++) {
    const wc = await cq.next(PATIENCE);
    const isCutOff = peerLeaves && wc.wrId === 2 && wc.statusName === 'WR_FLUSH_ERR';
    if (!isCutOff) throwIfFailed(wc);
  }
}

/** Waits until the peer disconnects. The server of ucmatose does so when all its requests are acknowledged. */
async function peerHasLeft(id: CmId): Promise<void> {
  while ((await id.channel.next(PATIENCE)).type !== 'DISCONNECTED');
}

/**
 * Waits until the peer has repeated no request for `QUIET_MS`: it has all our ACKs then. Its program polls for its
 * completions, and rxe repeats a request that nobody acknowledges for ever.
 */
async function allAcknowledged(device: Device): Promise<void> {
  const repeated = () => device.counters().duplicate_request;
  for (let before = -1; before !== repeated(); await wait(QUIET_MS)) before = repeated() ?? 0;
}

const ucmatose = (port: number, ...more: string[]) => [
  'ucmatose',
  '-p',
  String(port),
  '-c',
  String(CONNECTIONS),
  '-C',
  '1',
  '-S',
  String(BYTES),
  ...more,
];

async function material(device: Device): Promise<[Pd, Mr]> {
  const pd = await device.allocPd();
  return [pd, await pd.regMr(4096)];
}

describeWithRxe('rdma_cm over a bad link', 1500, (environment) => {
  test('ucmatose serves our client and connects to our server: both ends complete, up to the disconnect', async () => {
    await using our = await OurDevice.open('packet', { faults: { seed: 7, both: FAULTS } });
    const { device } = our;
    const [pd, mr] = await material(device);
    const listener = createCmId(device);
    await listener.bindAddr('::', OURS);
    await listener.listen();
    const server = environment.guest.spawn(ucmatose(THEIRS));
    await environment.guest.listening(THEIRS, 'rdma');
    const client = environment.guest.spawn(ucmatose(OURS, '-s', CARD.ipv4));

    const calling = Array.from({ length: CONNECTIONS }, async () => {
      const id = createCmId(device);
      await id.resolveAddr(GUEST.ipv4, THEIRS);
      await id.resolveRoute();
      const param = { responderResources: 1, initiatorDepth: 1, rnrRetry: 7 };
      await converse(id, pd, mr, () => id.connect(param), { peerLeaves: true });
      await peerHasLeft(id);
      return id;
    });
    const answering = Array.from({ length: CONNECTIONS }, async () => {
      const id = await listener.getRequest(PATIENCE);
      await converse(id, pd, mr, () => id.accept(), { peerLeaves: false });
      return id;
    });
    const ids = await Promise.all([...calling, ...answering]);
    await allAcknowledged(device);
    // the client of ucmatose waits for our DREQ
    await Promise.all(ids.map((id) => id.disconnect()));
    const ends = await Promise.all([server.exited, client.exited]);
    expect(ends).toMatchObject([{ status: 0 }, { status: 0 }]);
    const counters = (await MadAgent.of(device)).counters();
    const again = Object.keys(counters).filter((name) => /^cm_(tx_retries|rx_duplicates)/.test(name));
    expect(again).not.toEqual([]);
    expect(Object.keys(counters).filter((name) => name.startsWith('cm_drop'))).toEqual([]);
    // a DREQ whose DREP is lost is sent again after four seconds, up to fifteen times
  }, 240_000);
});
