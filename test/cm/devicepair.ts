/** Two devices of this process, and rdma_cm connections between them. */
import { onTestFinished } from 'vitest';
import { type CmId, type CmIdOptions, type ConnParam, createCmId } from '../../src/cm/index.js';
import { type Cq, type Device, MemoryHub, type Mr, type OpenOptions, type Pd, type Qp } from '../../src/index.js';
import { ALL, loopback, mode, openOn } from '../verbs/pair.js';

export const PORT = 7471;

/** One device, with the objects that a connection needs. */
export interface Side {
  readonly device: Device;
  readonly pd: Pd;
  readonly cq: Cq;
  readonly mr: Mr;
}

/** A device with an id and its queue pair. */
export interface SideWithId extends Side {
  readonly id: CmId;
  readonly qp: Qp;
}

export class DevicePair implements AsyncDisposable {
  private constructor(
    readonly client: Side,
    readonly server: Side,
  ) {}

  static async open(options: OpenOptions = {}): Promise<DevicePair> {
    const hub = new MemoryHub();
    const side = async (seed: number): Promise<Side> => {
      const addresses = mode === 'worker' ? loopback(2) : {};
      const device = await openOn(hub, { memoryBytes: 24 * 2 ** 20, ...addresses, ...options, seed });
      const pd = await device.allocPd();
      return { device, pd, cq: await device.createCq({ cqe: 1024 }), mr: await pd.regMr(4096, { access: ALL }) };
    };
    return new DevicePair(await side(1), await side(2));
  }

  /** Same as `open`; closes the devices after the current test. */
  static async forTest(options: OpenOptions = {}): Promise<DevicePair> {
    const pair = await DevicePair.open(options);
    onTestFinished(() => pair[Symbol.asyncDispose]());
    return pair;
  }

  async listen(options: CmIdOptions = {}, backlog = 16, address = '::'): Promise<CmId> {
    const listener = createCmId(this.server.device, options);
    await listener.bindAddr(address, PORT);
    await listener.listen({ backlog });
    return listener;
  }

  /** Returns a client whose route is resolved, with a queue pair and a posted receive. */
  async resolved(options: CmIdOptions = {}, address = this.addressOf(this.server)): Promise<SideWithId> {
    const id = createCmId(this.client.device, options);
    await id.resolveAddr(address, PORT);
    await id.resolveRoute();
    return this.withQp(this.client, id);
  }

  async withQp(side: Side, id: CmId): Promise<SideWithId> {
    const qp = await id.createQp(side.pd, { sendCq: side.cq, maxSendWr: 8, maxRecvWr: 8 });
    qp.postRecv({ wrId: 1, sgList: side.mr.sge(0, 1024) });
    return { ...side, id, qp };
  }

  /** Connects both ends: from REQ to ESTABLISHED. */
  async connected(
    options: CmIdOptions = {},
    { connect, accept, address }: { connect?: ConnParam; accept?: ConnParam; address?: string } = {},
  ): Promise<{ listener: CmId; client: SideWithId; server: SideWithId }> {
    const listener = await this.listen(options);
    const client = await this.resolved(options, address);
    const connecting = client.id.connect(connect);
    const server = await this.withQp(this.server, await listener.getRequest());
    await Promise.all([connecting, server.id.accept(accept)]);
    return { listener, client, server };
  }

  addressOf({ device }: Side, family: 4 | 6 = 4): string {
    const isIt = (address: string) => address.includes(':') === (family === 6) && !address.startsWith('fe80');
    return device.gids.find(({ address }) => isIt(address))?.address as string;
  }

  /** Returns the second address of a device. */
  otherAddressOf({ device }: Side): string {
    return device.gids.filter(({ address }) => !address.startsWith('fe80'))[1]?.address as string;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { device } of [this.client, this.server]) await device.close({ force: true });
  }
}

/** Returns the names of the events in a channel, and removes them. */
export function eventsOf({ channel }: CmId): string[] {
  const names: string[] = [];
  for (let event = channel.poll(); event !== undefined; event = channel.poll()) names.push(event.type);
  return names;
}
