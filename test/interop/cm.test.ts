/** rdma_cm against the stock programs of rdma-core: rping, ucmatose, rdma_client and rdma_server, udaddy, in either role. */
import { expect, describe as group, test } from 'vitest';
import {
  type CmId,
  type CmIdOptions,
  type ConnParam,
  type Cq,
  createCmId,
  GRH_BYTES,
  type Mr,
  type Pd,
  type Qp,
  type QpOptions,
  throwIfFailed,
  type Wc,
} from '../../src/index.js';
import { type LinkKind, OurDevice } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import { describeWithRxe } from './world.js';

const PATIENCE = { timeout: 60_000 };
const ALL = ['localWrite', 'remoteWrite', 'remoteRead'] as const;
const SIZES = { maxSendWr: 16, maxRecvWr: 16 } satisfies Partial<QpOptions>;

/** One end of ours, with everything that it posts from. */
class Side {
  constructor(
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    readonly id: CmId,
    readonly qp: Qp,
  ) {}

  static async on(id: CmId): Promise<Side> {
    const { device } = id;
    const [pd, cq] = [await device.allocPd(), await device.createCq({ cqe: 64 })];
    const mr = await pd.regMr(8192, { access: ALL });
    return new Side(pd, cq, mr, id, await id.createQp(pd, { sendCq: cq, ...SIZES }));
  }

  receive(offset: number, length: number): void {
    this.qp.postRecv({ wrId: offset, sgList: this.mr.slice(offset, length) });
  }

  async completion(): Promise<Wc> {
    const wc = await this.cq.next({ timeout: 20_000 });
    throwIfFailed(wc);
    return wc;
  }

  /** So many of both kinds, in any order. */
  async completions(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await this.completion();
  }

  send(offset: number, length: number): void {
    this.qp.postSend({ opcode: 'SEND', sgList: this.mr.slice(offset, length) });
  }

  /** The next event of a kind; the others before it are of no interest. */
  async event(type: string): Promise<void> {
    while ((await this.id.channel.next({ timeout: 20_000 })).type !== type);
  }
}

async function resolved(our: OurDevice, address: string, port: number, options: CmIdOptions = {}): Promise<Side> {
  const id = createCmId(our.device, options);
  await id.resolveAddr(address, port);
  await id.resolveRoute();
  return Side.on(id);
}

async function listening(our: OurDevice, port: number, options: CmIdOptions = {}): Promise<CmId> {
  const id = createCmId(our.device, options);
  await id.bindAddr('::', port);
  await id.listen();
  return id;
}

async function asked(listener: CmId): Promise<Side> {
  return Side.on(await listener.getRequest({ timeout: 20_000 }));
}

/** rping's message: where a buffer is. */
function advertise({ mr }: Side, at: number, offset: number, length: number): void {
  mr.buffer.writeBigUInt64BE(BigInt(mr.addr + offset), at);
  mr.buffer.writeUInt32BE(mr.rkey, at + 8);
  mr.buffer.writeUInt32BE(length, at + 12);
}

const MESSAGE = 16;
const [INBOX, OUTBOX, DATA, BACK] = [0, 64, 1024, 2048];

/** rping's client: what is to be read, what may be written, and both must be the same in the end. */
async function ping(side: Side, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    side.mr.buffer.fill(0, DATA, DATA + 64);
    side.mr.buffer.write(`rdma-ping-${n}: ABCDEFGHIJKLMNOPQRSTUVWXYZ`, DATA);
    for (const offset of [DATA, BACK]) {
      advertise(side, OUTBOX, offset, 64);
      side.send(OUTBOX, MESSAGE);
      await side.completions(2);
      side.receive(INBOX, MESSAGE);
    }
    const text = (at: number) => side.mr.buffer.toString('utf8', at, side.mr.buffer.indexOf(0, at));
    expect(text(BACK)).toBe(text(DATA));
  }
}

/** rping's server. */
async function pong(side: Side, count: number): Promise<void> {
  for (let n = 0; n < count; n++)
    for (const opcode of ['RDMA_READ', 'RDMA_WRITE'] as const) {
      await side.completion();
      const remoteAddr = side.mr.buffer.readBigUInt64BE(INBOX);
      const [rkey, length] = [side.mr.buffer.readUInt32BE(INBOX + 8), side.mr.buffer.readUInt32BE(INBOX + 12)];
      side.receive(INBOX, MESSAGE);
      side.qp.postSend({ opcode, sgList: side.mr.slice(DATA, length), remoteAddr, rkey });
      await side.completion();
      side.send(OUTBOX, MESSAGE);
      await side.completion();
    }
}

describeWithRxe('rdma_cm', 1500, (world) => {
  group.each<LinkKind>(['packet', 'udp'])('link %s', (link) => {
    const rows = [
      ['IPv4', GUEST.ipv4, CARD.ipv4, '0.0.0.0'],
      ['IPv6', GUEST.ipv6, CARD.ipv6, '::0'],
    ] as const;

    test.each(rows)('rping serves us, %s', async (_, peer, __, any) => {
      await using our = await OurDevice.open(link);
      const server = world.guest.spawn(['rping', '-s', '-a', any, '-v', '-V', '-C', '5']);
      await world.guest.listening(7174, 'rdma');
      const side = await resolved(our, peer, 7174);
      side.receive(INBOX, MESSAGE);
      await side.id.connect({ responderResources: 1, initiatorDepth: 1 });
      await ping(side, 5);
      await side.id.disconnect();
      const { status, stdout } = await server.exited;
      expect([status, stdout.match(/server ping data: rdma-ping-\d/g)?.length]).toEqual([0, 5]);
    });

    test.each(rows)('rping asks us, %s', async (_, __, address) => {
      await using our = await OurDevice.open(link);
      const listener = await listening(our, 7174);
      const client = world.guest.run(['rping', '-c', '-a', address, '-v', '-V', '-C', '5'], PATIENCE);
      const side = await asked(listener);
      expect(side.id.request).toMatchObject({ responderResources: 1, initiatorDepth: 1, retryCount: 7 });
      side.receive(INBOX, MESSAGE);
      await side.id.accept();
      await pong(side, 5);
      await side.event('DISCONNECTED');
      expect((await client).match(/ping data: rdma-ping-\d/g)?.length).toBe(5);
    });
  });

  test('nobody listens: either end hears why', async () => {
    await using our = await OurDevice.open('packet');
    const side = await resolved(our, GUEST.ipv4, 7999);
    await expect(side.id.connect()).rejects.toMatchObject({ code: 'ECONNREFUSED', reason: 'INVALID_SERVICE_ID' });
    const { status, stdout, stderr } = await world.guest.exec(
      ['rping', '-c', '-a', CARD.ipv4, '-p', '7999', '-C', '1'],
      PATIENCE,
    );
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 8');
  });

  test('our program says no', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7174);
    const client = world.guest.exec(['rping', '-c', '-a', CARD.ipv4, '-C', '1'], PATIENCE);
    await (await listener.getRequest({ timeout: 20_000 })).reject();
    const { stdout, stderr } = await client;
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 28');
  });

  test('rdma_server serves us', async () => {
    await using our = await OurDevice.open('packet');
    const server = world.guest.spawn(['rdma_server']);
    await world.guest.listening(7471, 'rdma');
    const side = await resolved(our, GUEST.ipv4, 7471);
    side.receive(INBOX, MESSAGE);
    await side.id.connect();
    side.send(OUTBOX, MESSAGE);
    await side.completions(2);
    await side.id.disconnect();
    expect((await server.exited).status).toBe(0);
  });

  test('rdma_client asks us', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7471);
    const client = world.guest.run(['rdma_client', '-s', CARD.ipv4], PATIENCE);
    const side = await asked(listener);
    side.receive(INBOX, MESSAGE);
    await side.id.accept();
    await side.completion();
    side.send(OUTBOX, MESSAGE);
    await side.event('DISCONNECTED');
    await client;
  });

  const COUNT = 10;
  const BYTES = 100;
  const receiveAll = (side: Side) => {
    for (let i = 0; i < COUNT; i++) side.receive(i * 256, BYTES + (side.qp.type === 'UD' ? GRH_BYTES : 0));
  };

  test('ucmatose serves us', async () => {
    await using our = await OurDevice.open('packet');
    const server = world.guest.spawn(['ucmatose']);
    await world.guest.listening(7471, 'rdma');
    const side = await resolved(our, GUEST.ipv4, 7471);
    receiveAll(side);
    const param: ConnParam = { responderResources: 1, initiatorDepth: 1, retryCount: 5, rnrRetryCount: 7 };
    await side.id.connect(param);
    await side.completions(COUNT);
    for (let i = 0; i < COUNT; i++) side.send(4096, BYTES);
    await side.event('DISCONNECTED');
    expect((await server.exited).status).toBe(0);
  });

  test('ucmatose asks us', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7471);
    const client = world.guest.run(['ucmatose', '-s', CARD.ipv4], PATIENCE);
    const side = await asked(listener);
    expect(side.id.request).toMatchObject({
      responderResources: 1,
      initiatorDepth: 1,
      retryCount: 5,
      rnrRetryCount: 0,
    });
    receiveAll(side);
    await side.id.accept();
    for (let i = 0; i < COUNT; i++) side.send(4096, BYTES);
    await side.completions(2 * COUNT);
    await side.id.disconnect();
    await client;
  });

  test('udaddy serves us', async () => {
    await using our = await OurDevice.open('packet');
    const server = world.guest.spawn(['udaddy']);
    await world.guest.listening(7174, 'rdma');
    const side = await resolved(our, GUEST.ipv4, 7174, { space: 'UDP' });
    receiveAll(side);
    const { datagram } = await side.id.connect();
    if (datagram?.ah === undefined) throw new Error('no address handle');
    const { ah, qpNum: remoteQpn, qkey: remoteQkey } = datagram;
    const to = { ah, remoteQpn, remoteQkey, immData: side.qp.qpNum, sgList: side.mr.slice(4096, BYTES) };
    for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
    await side.completions(2 * COUNT);
    expect((await server.exited).status).toBe(0);
  });

  test('udaddy asks us', async () => {
    await using our = await OurDevice.open('packet');
    const listener = await listening(our, 7174, { space: 'UDP' });
    const client = world.guest.run(['udaddy', '-s', CARD.ipv4], PATIENCE);
    const side = await asked(listener);
    receiveAll(side);
    await side.id.accept();
    const first = await side.completion();
    for (let i = 1; i < COUNT; i++) await side.completion();
    const ah = await side.pd.createAhFromWc(first, side.mr.buffer.subarray(first.wrId));
    const to = { ah, remoteQpn: first.immData, remoteQkey: 0x01234567, sgList: side.mr.slice(4096, BYTES) };
    for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND', ...to });
    await side.completions(COUNT);
    await client;
  });

  const GROUP = '239.77.0.1';
  async function member(our: OurDevice): Promise<Side> {
    const id = createCmId(our.device, { space: 'UDP' });
    await id.bindAddr(CARD.ipv4);
    return Side.on(id);
  }

  test('mckey hears us', async () => {
    await using our = await OurDevice.open('packet');
    const hearer = world.guest.spawn(['mckey', '-m', GROUP, '-b', GUEST.ipv4, '-C', String(COUNT)]);
    await world.guest.run('until grep -q 01004DEF /proc/net/igmp; do sleep 0.05; done', PATIENCE);
    const side = await member(our);
    const { ah, qpNum, qkey } = await side.id.joinMulticast(GROUP, { sendOnly: true });
    if (ah === undefined) throw new Error('no address handle');
    const to = { ah, remoteQpn: qpNum, remoteQkey: qkey, immData: side.qp.qpNum, sgList: side.mr.slice(4096, BYTES) };
    for (let i = 0; i < COUNT; i++) side.qp.postSend({ opcode: 'SEND_WITH_IMM', ...to });
    await side.completions(COUNT);
    expect((await hearer.exited).status).toBe(0);
  });
});
