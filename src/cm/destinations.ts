/** Destinations of an id's datagrams: services and multicast groups. Their address handles are closed with the id. */
import { VerbsError } from '../errors.js';
import { MULTICAST_QPN } from '../verbs/address/groups.js';
import type { AddressHandle } from '../verbs/objects/ah.js';
import type { Qp } from '../verbs/objects/qp.js';
import { RetiredAhs } from './ahcache.js';
import type { DatagramDestination } from './channel.js';
import type { CmId } from './cmid.js';
import type { DatagramPeer } from './core/events.js';
import { UDP_QKEY } from './parameters.js';

interface Membership {
  readonly qp: Qp;
  readonly isMember: boolean;
  readonly ah: AddressHandle | undefined;
}

/** Every id has one. */
export class Destinations {
  readonly #ahs = new Set<AddressHandle>();
  readonly #memberships = new Map<string, Membership>();

  constructor(readonly id: CmId) {}

  /**
   * Returns the destination of a peer's queue pair, with an address handle when the id has a queue pair to use it.
   * @throws VerbsError ECANCELED when the id is closed meanwhile; as `pd.createAh`
   */
  async resolve(
    address: string,
    { qpNum, qkey }: DatagramPeer,
    qp: Qp | undefined,
    sgidIndex: number,
  ): Promise<DatagramDestination> {
    if (qp === undefined) return { ah: undefined, qpNum, qkey };
    const ah = await qp.pd.createAh({
      grh: { dgid: address, sgidIndex, trafficClass: this.id.options.tos ?? 0 },
      sl: this.id.sl,
    });
    this.#ahs.add(ah);
    this.#assertOpen();
    return { ah, qpNum, qkey };
  }

  /** Joins a multicast group. @throws VerbsError EINVAL when it is joined already; as `qp.attachMcast`, `resolve` */
  async join(group: string, qp: Qp, sgidIndex: number, sendOnly: boolean): Promise<DatagramDestination> {
    if (this.#memberships.has(group)) throw new VerbsError('EINVAL', `${group} is joined already`);
    const destination = await this.resolve(group, { qpNum: MULTICAST_QPN, qkey: UDP_QKEY }, qp, sgidIndex);
    try {
      if (!sendOnly) await qp.attachMcast(group);
    } catch (error) {
      if (destination.ah !== undefined) this.#release(destination.ah);
      throw error;
    }
    this.#memberships.set(group, { qp, isMember: !sendOnly, ah: destination.ah });
    this.#assertOpen();
    return destination;
  }

  /** Leaves a multicast group and retires its address handle. @throws VerbsError ENOENT when it was not joined */
  async leave(group: string): Promise<void> {
    const membership = this.#memberships.get(group);
    if (membership === undefined) throw new VerbsError('ENOENT', `${group} was not joined`);
    this.#memberships.delete(group);
    if (membership.ah !== undefined) this.#release(membership.ah);
    if (membership.isMember && !membership.qp.isClosed) await membership.qp.detachMcast(group);
  }

  /** Leaves all groups and retires all address handles. */
  close(): void {
    for (const group of [...this.#memberships.keys()]) void this.leave(group).catch(() => {});
    for (const ah of this.#ahs) this.#release(ah);
  }

  #release(ah: AddressHandle): void {
    this.#ahs.delete(ah);
    RetiredAhs.of(this.id.device).retire(ah);
  }

  /** Closes the destinations again when the id was closed meanwhile. @throws VerbsError ECANCELED */
  #assertOpen(): void {
    if (!this.id.isClosed) return;
    this.close();
    throw new VerbsError('ECANCELED', `${this.id} was closed`);
  }
}
