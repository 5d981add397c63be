/**
 * An id of a program whose queue pairs are its own (in Linux the struct ucma_context): carries out the commands of
 * librdmacm on an id of this process, and says its events in the kernel's words.
 */
import { constants } from 'node:os';
import { ipBytes, isWildcard } from '../../base/address.js';
import type { CmEvent } from '../../cm/channel.js';
import { CmError } from '../../cm/cmerror.js';
import { type CmId, type CmIdOptions, createCmId } from '../../cm/cmid.js';
import type { DerivedAttributes } from '../../cm/core/derive.js';
import type { CmAddress } from '../../cm/core/events.js';
import { NO_DATA } from '../../cm/core/messages.js';
import { RejectReason, SidrStatus } from '../../cm/core/reasons.js';
import { UDP_QKEY } from '../../cm/parameters.js';
import { VerbsError } from '../../errors.js';
import { type AccessName, accessBits } from '../../verbs/access.js';
import { MULTICAST_QPN } from '../../verbs/address/groups.js';
import { DEFAULT_HOP_LIMIT } from '../../verbs/address/resolvedaddress.js';
import type { Context } from '../../verbs/objects/context.js';
import {
  eventBytes,
  OPTION_LEVEL_ID,
  Option,
  PortSpace,
  QP_TYPE_UC,
  QpState,
  qpAttributeBytes,
  routeBytes,
  type UserAddress,
  type UserConnParam,
  type UserEvent,
  type UserQpAttributes,
} from './abi.js';

/** The program of an id. */
export interface UserHost {
  readonly device: Context;
  /** The program's node GUID, 8 bytes. */
  readonly guid: Uint8Array;
  /** Returns the index of an address in the program's GID table. @throws VerbsError EADDRNOTAVAIL */
  gidIndexOf(address: string): number;
  /** Whether a queue pair number is one of the program's. */
  ownsQpn(qpNum: number): boolean;
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Room for requests of a program that gives none, or too many. */
const BACKLOG = { default: 128, most: 1024 } as const;

/** See the head of this file. */
export class UserId {
  readonly cm: CmId;
  readonly #host: UserHost;
  readonly #isPassive: boolean;
  #attributes: DerivedAttributes | undefined;
  /** Numbers of its memberships of groups. */
  readonly #memberships = new Set<number>();

  private constructor(
    readonly number: number,
    /** The program's number of the id. */
    public uid: bigint,
    host: UserHost,
    cm: CmId,
  ) {
    this.#host = host;
    this.cm = cm;
    this.#isPassive = cm.request !== undefined;
  }

  /** @throws VerbsError EOPNOTSUPP for a port space that is neither TCP nor UDP */
  static create(
    number: number,
    uid: bigint,
    host: UserHost,
    portSpace: number,
    qpType: number,
    more: Pick<CmIdOptions, 'channel'>,
  ): UserId {
    if (portSpace !== PortSpace.TCP && portSpace !== PortSpace.UDP)
      throw new VerbsError('EOPNOTSUPP', `port space 0x${portSpace.toString(16)} is neither TCP nor UDP`);
    const options: CmIdOptions = {
      ...more,
      space: portSpace === PortSpace.TCP ? 'TCP' : 'UDP',
      qpType: qpType === QP_TYPE_UC ? 'UC' : 'RC',
    };
    return new UserId(number, uid, host, createCmId(host.device, options));
  }

  /** Returns the id of a request. */
  ofRequest(number: number, cm: CmId): UserId {
    return new UserId(number, this.uid, this.#host, cm);
  }

  // ---- commands ----

  /** @throws VerbsError ENODEV when the device does not have the address; EADDRINUSE, EINVAL */
  async bind({ address, port }: CmAddress): Promise<void> {
    try {
      await this.cm.bindAddr(withoutLoopback(address), port);
    } catch (error) {
      const isForeign = error instanceof VerbsError && error.code === 'EADDRNOTAVAIL';
      throw isForeign ? new VerbsError('ENODEV', error.message, { cause: error }) : error;
    }
  }

  /** Begins to resolve an address: an event follows. */
  async resolve(source: CmAddress | undefined, { address, port }: CmAddress): Promise<void> {
    if (source !== undefined && this.cm.state === 'IDLE' && !isWildcard(source.address)) await this.bind(source);
    const destination = isLoopback(address) ? this.#ownAddress(ipBytes(address).length) : address;
    await begun(this.cm.resolveAddr(destination, port));
  }

  async listen(backlog: number): Promise<void> {
    if (this.cm.state === 'IDLE') await this.cm.bindAddr('0.0.0.0');
    await this.cm.listen({ backlog: backlog > 0 ? Math.min(backlog, BACKLOG.most) : BACKLOG.default });
  }

  async connect(param: UserConnParam): Promise<void> {
    const isDatagram = this.cm.space === 'UDP';
    if (!isDatagram) this.#checkQpn(param.qpNum);
    const { privateData, responderResources, initiatorDepth, retryCnt, rnrRetry, qpNum, srq } = param;
    const connection = { responderResources, initiatorDepth, retryCnt, rnrRetry, qpNum, srq };
    await begun(this.cm.connect({ privateData, ...(!isDatagram && connection) }));
  }

  /** Accepts a request; at the active end, completes the connection. */
  async accept(uid: bigint, param: UserConnParam): Promise<void> {
    if (!this.#isPassive) return this.cm.establish();
    this.#checkQpn(param.qpNum);
    const { privateData, responderResources, initiatorDepth, rnrRetry, qpNum, qkey, srq } = param;
    const isDatagram = this.cm.space === 'UDP';
    const service = { qkey: qkey === 0 ? UDP_QKEY : qkey };
    const connection = { responderResources, initiatorDepth, rnrRetry, srq };
    await begun(this.cm.accept({ privateData, qpNum, ...(isDatagram ? service : connection) }));
    this.uid = uid;
  }

  async reject(privateData: Uint8Array, reason: number): Promise<void> {
    const known = reason === RejectReason.VENDOR_OPTION_NOT_SUPPORTED ? 'VENDOR_OPTION_NOT_SUPPORTED' : undefined;
    await this.cm.reject({ privateData, ...(known && { reason: known }) });
  }

  /** As in the kernel, it is no error of an id that is not connected yet, or no longer. */
  disconnect(): void {
    this.cm.disconnect().catch(() => {});
  }

  /** @returns false if there is no such option */
  setOption(level: number, name: number, value: DataView): boolean {
    if (level !== OPTION_LEVEL_ID || value.byteLength === 0) return false;
    // it takes effect when the id connects or listens
    const options: Mutable<CmIdOptions> = this.cm.options;
    if (name === Option.TOS) options.tos = value.getUint8(0);
    else if (name === Option.ACK_TIMEOUT) options.ackTimeout = Math.min(31, Math.max(1, value.getUint8(0)));
    else if (name === Option.AFONLY) options.ipv6Only = value.getUint8(0) !== 0;
    // ports are shared by clients and listeners anyway, and not by two listeners
    else if (name !== Option.REUSEADDR) return false;
    return true;
  }

  /** Joins a group: the program's own socket receives it. @param uid the program's number of the membership */
  joinGroup(number: number, uid: bigint, address: string): Uint8Array {
    this.#memberships.add(number);
    const { localAddress } = this.cm;
    const source =
      localAddress === undefined || isWildcard(localAddress.address)
        ? this.#ownAddress(ipBytes(address).length)
        : localAddress.address;
    const to = { destination: address, sgidIndex: this.#host.gidIndexOf(source), flowLabel: 0, sl: this.cm.sl };
    const datagram = {
      qpNum: MULTICAST_QPN,
      qkey: UDP_QKEY,
      address: { ...to, hopLimit: DEFAULT_HOP_LIMIT, trafficClass: this.cm.options.tos ?? 0 },
    };
    const about = { type: 'MULTICAST_JOIN', uid, id: number, status: 0, privateData: NO_DATA } as const;
    return eventBytes({ ...about, isDatagram: true, datagram });
  }

  /** @returns whether the id has the membership */
  leaveGroup(number: number): boolean {
    return this.#memberships.delete(number);
  }

  close(): void {
    void this.cm.close();
  }

  // ---- queries ----

  /** Returns the answer to QUERY_ROUTE. */
  route(): Uint8Array {
    const { localAddress: local, remoteAddress: remote, device } = this.cm;
    const isOnDevice = local !== undefined && !isWildcard(local.address);
    return routeBytes({
      ...{ guid: this.#host.guid, local, remote, isOnDevice, hopLimit: DEFAULT_HOP_LIMIT },
      pathMtu: remote && device.queryPort().activeMtu,
    });
  }

  /** Returns the answer to INIT_QP_ATTR. @throws VerbsError EINVAL */
  qpAttributes(state: number): Uint8Array {
    const isKnown = state === QpState.INIT || state === QpState.RTR || state === QpState.RTS;
    if (!isKnown) throw new VerbsError('EINVAL', `state ${state} has no attributes of a connection`);
    return qpAttributeBytes(this.cm.space === 'UDP' ? datagramAttributes(state) : this.#connectionAttributes(state));
  }

  #connectionAttributes(state: number): UserQpAttributes {
    if (state === QpState.INIT)
      return { state, pkeyIndex: 0, accessFlags: accessBits('access', ['remoteWrite'] satisfies AccessName[]) };
    if (this.#isPassive && this.cm.state === 'REQUESTED') {
      const { responderResources, initiatorDepth } = this.cm.request ?? { responderResources: 0, initiatorDepth: 0 };
      // of the number of the queue pair nothing follows
      this.#attributes = this.cm.acceptAttributes({ qpNum: 2, responderResources, initiatorDepth });
    }
    const attributes = this.#attributes;
    if (attributes === undefined) throw new VerbsError('EINVAL', `${this.cm} has no connection`);
    const { init, rtr, rts, route, sl } = attributes;
    const access = accessBits('access', init.qpAccessFlags);
    if (state === QpState.RTS) {
      const { sqPsn, timeout, retryCnt, rnrRetry, maxRdAtomic } = rts;
      return { state, sqPsn, timeout, retryCnt, rnrRetry, maxRdAtomic };
    }
    const { pathMtu, destQpNum, rqPsn, maxDestRdAtomic, minRnrTimer } = rtr;
    const { dgid, sgid, hopLimit, trafficClass, flowLabel } = route;
    const address = {
      destination: dgid,
      sgidIndex: this.#host.gidIndexOf(sgid),
      hopLimit,
      trafficClass,
      flowLabel,
      sl,
    };
    return { state, accessFlags: access, address, pathMtu, destQpNum, rqPsn, maxDestRdAtomic, minRnrTimer };
  }

  // ---- events ----

  /**
   * Returns an event of the id as the program gets it; undefined for one that the kernel does not have.
   * @param request the id that came with a request
   */
  translate(event: CmEvent, request?: UserId): Uint8Array | undefined {
    const { number, uid } = this;
    const isDatagram = this.cm.space === 'UDP';
    const base = { uid, id: number, status: 0, privateData: NO_DATA, isDatagram };
    const of = (more: Partial<UserEvent> & Pick<UserEvent, 'type'>) => eventBytes({ ...base, ...more });
    switch (event.type) {
      case 'CONNECT_REQUEST': {
        const { privateData, ...connection } = event.request;
        const more = isDatagram ? {} : { connection };
        return of({ type: event.type, id: request?.number ?? 0, privateData, ...more });
      }
      case 'CONNECT_RESPONSE': {
        const { privateData, attributes, ...connection } = event.reply;
        this.#attributes = attributes;
        return of({ type: event.type, privateData, connection });
      }
      case 'ESTABLISHED': {
        // the client has completed the connection itself
        if (!this.#isPassive && !isDatagram) return undefined;
        const { privateData } = event;
        if (event.datagram === undefined) return of({ type: event.type, privateData });
        const { qpNum, qkey } = event.datagram;
        return of({ type: event.type, privateData, datagram: { qpNum, qkey, address: this.#peer() } });
      }
      case 'MULTICAST_JOIN':
      case 'MULTICAST_ERROR':
        // memberships are the program's own
        return undefined;
      default:
        return 'privateData' in event
          ? of({ type: event.type, privateData: event.privateData })
          : of({ type: event.type, ...('error' in event && failureOf(event.error)) });
    }
  }

  #peer(): UserAddress {
    const { localAddress, remoteAddress, sl } = this.cm;
    const { tos = 0 } = this.cm.options;
    const sgidIndex = this.#host.gidIndexOf(localAddress?.address ?? '');
    const to = { destination: remoteAddress?.address ?? '', sgidIndex, hopLimit: DEFAULT_HOP_LIMIT };
    return { ...to, trafficClass: tos, flowLabel: 0, sl };
  }

  /** Returns an address of the device. @param bytes 4 or 16 @throws VerbsError EADDRNOTAVAIL */
  #ownAddress(bytes: number): string {
    const own = this.#host.device.gids.map(({ address }) => address).find((each) => ipBytes(each).length === bytes);
    if (own !== undefined) return own;
    throw new VerbsError('EADDRNOTAVAIL', `the device has no address of IPv${bytes === 4 ? 4 : 6}`);
  }

  /** @throws VerbsError EINVAL for a queue pair of another program */
  #checkQpn(qpNum: number): void {
    if (this.#host.ownsQpn(qpNum)) return;
    throw new VerbsError('EINVAL', `queue pair 0x${qpNum.toString(16)} is not the program's`);
  }
}

/** Attributes of a queue pair for datagrams. */
function datagramAttributes(state: number): UserQpAttributes {
  if (state === QpState.INIT) return { state, pkeyIndex: 0, qkey: UDP_QKEY };
  return state === QpState.RTR ? { state } : { state, sqPsn: 0 };
}

/**
 * Waits until a call has begun. Wrong arguments and a wrong state of the id fail the command; later failures come as
 * events.
 */
const begun = async (call: Promise<unknown>): Promise<void> => {
  await Promise.race([call, undefined]);
};

const isLoopback = (address: string) => address === '::1' || address.startsWith('127.');

/** The loopback address of a host is that of each of its devices: programs bind to it as to a wildcard. */
function withoutLoopback(address: string): string {
  if (!isLoopback(address)) return address;
  return address === '::1' ? '::' : '0.0.0.0';
}

/** Status of an event for what has failed: the reason of the peer's message, else -errno. With its private data. */
function failureOf(error: Error): Pick<UserEvent, 'status' | 'privateData'> {
  if (!(error instanceof CmError)) return { status: -errnoOf(error), privateData: NO_DATA };
  const { reason, privateData } = error;
  if (reason === undefined) return { status: -errnoOf(error), privateData };
  const reasons: Readonly<Record<string, number>> = error.event === 'UNREACHABLE' ? SidrStatus : RejectReason;
  return { status: reasons[reason] ?? Number(reason), privateData };
}

/** Returns the number of an error: EINVAL for those of the arguments. */
export function errnoOf(error: unknown): number {
  const code = error instanceof VerbsError ? error.code : 'EINVAL';
  return constants.errno[code as keyof typeof constants.errno] ?? constants.errno.EINVAL;
}
