// rdma_cm against the stock programs over a link that loses, repeats and reorders: every message of a connection's life may
// be lost, and is sent again.
import { expect, test } from 'vitest';
import { CmPort } from '../../src/cm/port.js';
import { type CmId, createCmId, type Device, type Mr, type Pd, throwIfFailed } from '../../src/index.js';
import { OurDevice } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import { describeWithRxe } from './world.js';

const FAULTS = { drop: 0.12, duplicate: 0.1, reorder: 0.1 };
const CONNECTIONS = 4;
const BYTES = 100;
const PATIENCE = { timeout: 100_000 };
const OURS = 7471;
const THEIRS = 7472;

/**
 * One connection of ucmatose: one message each way.
 * @param peerLeaves it says farewell once it has our message: where its ACK is lost, the farewell may come first, and that the
 * message has arrived is for its exit status to say
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
  qp.postRecv({ wrId: 1, sgList: mr.slice(0, BYTES) });
  await join();
  qp.postSend({ wrId: 2, opcode: 'SEND', sgList: mr.slice(BYTES, BYTES) });
  for (let i = 0; i < 2; i++) {
    const wc = await cq.next(PATIENCE);
    const isCutOff = peerLeaves && wc.wrId === 2 && wc.statusName === 'WR_FLUSH_ERR';
    if (!isCutOff) throwIfFailed(wc);
  }
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

describeWithRxe('rdma_cm over a bad link', 1500, (world) => {
  test('ucmatose serves us and asks us: both ends come through, to the farewell', async () => {
    await using our = await OurDevice.open('packet', { faults: { seed: 7, both: FAULTS } });
    const { device } = our;
    const [pd, mr] = await material(device);
    const listener = createCmId(device);
    await listener.bindAddr('::', OURS);
    await listener.listen();
    const server = world.guest.spawn(ucmatose(THEIRS));
    await world.guest.listening(THEIRS, 'rdma');
    const client = world.guest.spawn(ucmatose(OURS, '-s', CARD.ipv4));

    const calling = Array.from({ length: CONNECTIONS }, async () => {
      const id = createCmId(device);
      await id.resolveAddr(GUEST.ipv4, THEIRS);
      await id.resolveRoute();
      const param = { responderResources: 1, initiatorDepth: 1, rnrRetryCount: 7 };
      await converse(id, pd, mr, () => id.connect(param), { peerLeaves: true });
      return id;
    });
    const answering = Array.from({ length: CONNECTIONS }, async () => {
      const id = await listener.getRequest(PATIENCE);
      await converse(id, pd, mr, () => id.accept(), { peerLeaves: false });
      return id;
    });
    const ids = await Promise.all([...calling, ...answering]);
    // ucmatose' server says farewell itself, its client waits for ours
    await Promise.all(ids.map((id) => id.disconnect()));
    const ends = await Promise.all([server.exited, client.exited]);
    expect(ends).toMatchObject([{ status: 0 }, { status: 0 }]);
    const counters = (await CmPort.of(device)).counters();
    const again = Object.keys(counters).filter((name) => name.startsWith('cm_tx_retries'));
    expect(again.length).toBeGreaterThan(0);
    expect(Object.keys(counters).filter((name) => name.startsWith('cm_drop'))).toEqual([]);
    // a farewell whose answer is lost is repeated after four seconds, up to fifteen times
  }, 240_000);
});
