/** Where an id's datagrams go: services and multicast groups, with the address handles that are closed with the id. */
import { VerbsError } from '../errors.js';
import { MULTICAST_QPN } from '../verbs/groups.js';
import type { Qp } from '../verbs/qp.js';
import type { Ah } from '../verbs/udah.js';
import type { DatagramDestination } from './channel.js';
import type { Endpoint } from './endpoint.js';
import type { DatagramPeer } from './events.js';
import { OldAhs } from './oldahs.js';
import { UDP_QKEY } from './parameters.js';

interface Membership {
  readonly qp: Qp;
  readonly isMember: boolean;
}

export class Groups {
  readonly #ahs = new Set<Ah>();
  readonly #joined = new Map<string, Membership>();

  constructor(readonly id: Endpoint) {}

  /**
   * The way to a queue pair behind an address; with an address handle when there is a queue pair to use it.
   * @throws VerbsError ECANCELED when the id is closed meanwhile; as `pd.createAh`
   */
  async destination(
    address: string,
    { qpNum, qkey }: DatagramPeer,
    qp: Qp | undefined,
    sgidIndex: number,
    tos: number,
  ): Promise<DatagramDestination> {
    if (qp === undefined) return { ah: undefined, qpNum, qkey };
    const ah = await qp.pd.createAh({ grh: { dgid: address, sgidIndex, trafficClass: tos } });
    this.#ahs.add(ah);
    this.#keep();
    return { ah, qpNum, qkey };
  }

  /** @throws VerbsError EINVAL for a member; as `qp.attachMcast`, `destination` */
  async join(group: string, qp: Qp, sgidIndex: number, tos: number, sendOnly: boolean): Promise<DatagramDestination> {
    if (this.#joined.has(group)) throw new VerbsError('EINVAL', `${group} is joined already`);
    const destination = await this.destination(group, { qpNum: MULTICAST_QPN, qkey: UDP_QKEY }, qp, sgidIndex, tos);
    try {
      if (!sendOnly) await qp.attachMcast(group);
    } catch (error) {
      if (destination.ah !== undefined) this.#release(destination.ah);
      throw error;
    }
    this.#joined.set(group, { qp, isMember: !sendOnly });
    this.#keep();
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
    for (const ah of this.#ahs) this.#release(ah);
  }

  #release(ah: Ah): void {
    this.#ahs.delete(ah);
    OldAhs.of(this.id.device).add(ah);
  }

  /** What comes to an id that was closed meanwhile goes at once. @throws VerbsError ECANCELED */
  #keep(): void {
    if (!this.id.isClosed) return;
    this.close();
    throw new VerbsError('ECANCELED', `${this.id} was closed`);
  }
}
