/** Where an id's datagrams go: services and multicast groups, with the address handles that are closed with the id. */
import { VerbsError } from '../errors.js';
import type { Device } from '../verbs/context.js';
import { MULTICAST_QPN } from '../verbs/groups.js';
import type { Qp } from '../verbs/qp.js';
import type { Ah } from '../verbs/udah.js';
import type { DatagramDestination } from './channel.js';
import type { DatagramPeer } from './events.js';
import { UDP_QKEY } from './parameters.js';

interface Membership {
  readonly qp: Qp;
  readonly isMember: boolean;
}

export class Groups {
  readonly #ahs: Ah[] = [];
  readonly #joined = new Map<string, Membership>();

  constructor(readonly device: Device) {}

  /** The way to a queue pair behind an address; with an address handle when there is a queue pair to use it. */
  async destination(
    address: string,
    { qpNum, qkey }: DatagramPeer,
    qp: Qp | undefined,
    sgidIndex: number,
    tos: number,
  ): Promise<DatagramDestination> {
    if (qp === undefined) return { ah: undefined, qpNum, qkey };
    const ah = await qp.pd.createAh({ grh: { dgid: address, sgidIndex, trafficClass: tos } });
    this.#ahs.push(ah);
    return { ah, qpNum, qkey };
  }

  /** @throws VerbsError EINVAL for a member; as `qp.attachMcast`, `pd.createAh` */
  async join(group: string, qp: Qp, sgidIndex: number, tos: number, sendOnly: boolean): Promise<DatagramDestination> {
    if (this.#joined.has(group)) throw new VerbsError('EINVAL', `${group} is joined already`);
    const destination = await this.destination(group, { qpNum: MULTICAST_QPN, qkey: UDP_QKEY }, qp, sgidIndex, tos);
    if (!sendOnly) await qp.attachMcast(group);
    this.#joined.set(group, { qp, isMember: !sendOnly });
    return destination;
  }

  /** @throws VerbsError ENOENT */
  async leave(group: string): Promise<void> {
    const membership = this.#joined.get(group);
    if (membership === undefined) throw new VerbsError('ENOENT', `${group} was not joined`);
    this.#joined.delete(group);
    if (membership.isMember && !membership.qp.isClosed) await membership.qp.detachMcast(group);
  }

  close(): void {
    for (const group of [...this.#joined.keys()]) void this.leave(group).catch(() => {});
    for (const ah of this.#ahs) void ah.close().catch(() => {});
  }
}
