/** A peer on a real link as the target of checks: the services that it offers, and queue pairs that scripts write. */
import { Scope } from '../../base/scope.js';
import type { Device } from '../../index.js';
import {
  type CmOptions,
  type CmPeer,
  isPermitted,
  LinkPort,
  type Operation,
  type PacketPort,
  type PeerRegion,
  type Requester,
  type RequesterOptions,
  type Responder,
  type ResponderOptions,
  type ScriptedLink,
  type Target,
  type Traffic,
} from '../../probe.js';
import { errorReport } from '../exit.js';
import { flowTo, ScriptedQueues } from './queues.js';
import { isCarriedOut, OPERATIONS, REMOTE } from './trial.js';

/** Connects a peer's responder queue pair to a scripted one. */
export interface PeerService {
  /** The program that has to run on the peer. */
  readonly start: string;
  /** Whether the peer posts receives. */
  readonly hasReceives: boolean;
  /** Whether our first PSN can be chosen. */
  readonly choosesPsn: boolean;
  /** Whether the path MTU can be chosen. Absent: no. */
  readonly choosesMtu?: boolean;
  /** Whether requests have to show first which operations it permits: any one of them, or several. */
  readonly needsTrial?: boolean;
  /** @throws Error when the peer does not serve this */
  connect(end: ScriptedEnd): Promise<ServedEnd>;
}

/** Connects a peer's requester queue pair to a scripted one. */
export interface RequesterService {
  /** The program that has to run on the peer. */
  readonly start: string;
  /** Kinds of requests that it sends. */
  readonly offers: readonly Traffic[];
  /** @throws Error when the peer does not serve this */
  connect(end: ScriptedEnd, options: RequesterOptions): Promise<ServedRequester>;
}

/** Our end of a connection, which has a queue pair number and no queue pair of the card behind it. */
export interface ScriptedEnd {
  readonly device: Device;
  readonly qpNum: number;
  /** PSN of our first request, if it can be chosen. */
  readonly psn: number;
  /** The largest path MTU, in bytes, if it can be chosen. Absent: that of the link. */
  readonly mtu?: number;
  /** Returns the port of the connection, as soon as the peer's queue pair is known. */
  port(peer: PeerEnd): Promise<PacketPort>;
}

/** The peer's end of a connection. */
export interface PeerEnd {
  readonly address: string;
  readonly qpNum: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
}

/** A connection that a service has made. */
export interface ServedEnd extends Omit<Responder, 'region'> {
  /** Absent: the peer offers none that permits all operations. */
  readonly region?: PeerRegion;
  close(): Promise<void>;
}

/** A connection over which the peer sends requests. */
export interface ServedRequester extends Requester {
  close(): Promise<void>;
}

/** Options of `LinkTarget`. */
export interface LinkTargetOptions {
  readonly device: Device;
  readonly link: ScriptedLink;
  readonly services: readonly PeerService[];
  /** Services that make the peer send requests. Default: none. */
  readonly requesters?: readonly RequesterService[];
  /** Services that are known not to be there, and why. */
  readonly absent?: ReadonlyMap<PeerService | RequesterService, string>;
  /** Reaches the peer's connection manager. Absent: checks of it are not reachable. */
  readonly manager?: {
    open(options: CmOptions): Promise<CmPeer | string>;
    release(): Promise<void>;
    /** Tries it again. @returns whether it answers; undefined if it has never answered */
    answers(): Promise<boolean | undefined>;
  };
}

/** The stock program whose server permits an operation. */
const TOOLS: Readonly<Record<Operation, string>> = {
  ...{ WRITE: 'ib_write_bw', READ: 'ib_read_bw', ATOMIC: 'ib_atomic_bw', SEND: 'ib_send_bw' },
};

/** The start of a connection: the first PSN and the largest path MTU. */
type Start = Pick<ScriptedEnd, 'psn' | 'mtu'>;

/** Connects queue pairs of a peer by its services. */
export class LinkTarget implements Target {
  readonly #options: LinkTargetOptions;
  readonly #open = new Scope();
  /** The reason why a service is absent: it was known, or its first attempt has shown it. */
  readonly #missing: Map<PeerService | RequesterService, string>;
  /** Rights that services give, as far as they are known. */
  readonly #offers = new Map<PeerService, readonly Operation[]>();
  /** Connects again, by services that have connected before. */
  readonly #served = new Map<PeerService | RequesterService, () => Promise<unknown>>();
  readonly #queues: ScriptedQueues;

  constructor(options: LinkTargetOptions) {
    this.#options = options;
    this.#queues = new ScriptedQueues(options.device, options.link);
    this.#missing = new Map(options.absent);
  }

  /** Reasons of services that fail although they were not known to be absent, by the program that has to run there. */
  get missing(): readonly (readonly [start: string, why: string])[] {
    const found = [...this.#missing].filter(([service]) => !this.#options.absent?.has(service));
    return found.map(([{ start }, why]) => [start, why] as const);
  }

  async responder(options: ResponderOptions): Promise<Responder | string> {
    const { services } = this.#options;
    const fitting: { readonly service: PeerService; readonly offers: readonly Operation[] }[] = [];
    for (const service of services) {
      const offers = await this.#offersOf(service);
      if (isPermitted(options, offers)) fitting.push({ service, offers });
    }
    // first those that start with the PSN and the path MTU that the check wants, and that permit the most
    const rank = ({ service, offers }: (typeof fitting)[number]) =>
      offers.length +
      (options.psn !== undefined && service.choosesPsn ? OPERATIONS.length : 0) +
      (options.mtu !== undefined && service.choosesMtu ? OPERATIONS.length : 0);
    for (const { service, offers } of fitting.toSorted((a, b) => rank(b) - rank(a))) {
      if (this.#missing.has(service)) continue;
      const psn = options.psn ?? randomPsn();
      const responder = await (service.needsTrial
        ? this.#connectTried(service, { ...options, psn }, offers)
        : this.#connect(service, { ...options, psn }));
      if (responder !== undefined) return responder;
    }
    const could = services.filter((one) => isPermitted(options, possible(one))).map(({ start }) => start);
    const tools = OPERATIONS.filter((one) => isPermitted(options, [one])).map((one) => TOOLS[one]);
    const stock = services.some(({ needsTrial }) => needsTrial) && tools.length > 0;
    return `start on the peer: ${[...could, ...(stock ? [`in a loop ${tools.join(', ')}`] : [])].join(' or ')}`;
  }

  async requester(options: RequesterOptions): Promise<Requester | string> {
    const { anyOf } = options;
    const fitting = (this.#options.requesters ?? []).filter(({ offers }) =>
      anyOf.some((kind) => offers.includes(kind)),
    );
    for (const service of fitting) {
      if (this.#missing.has(service)) continue;
      const served = await this.#serve(service, { psn: randomPsn() }, (end) => service.connect(end, options));
      if (served !== undefined) return served;
    }
    if (fitting.length === 0) return `no service makes the peer send ${anyOf.join(' or ')} to us`;
    return `start on the peer: ${fitting.map(({ start }) => start).join(' or ')}`;
  }

  async cm(options: CmOptions): Promise<CmPeer | string> {
    return (await this.#options.manager?.open(options)) ?? 'no service over rdma_cm is known';
  }

  async release(): Promise<void> {
    await this.#open.close();
    await this.#options.manager?.release();
  }

  async answers(): Promise<boolean> {
    const again = [...this.#served.values()].map(async (connect) => (await connect()) !== undefined);
    const found = await Promise.all([...again, this.#options.manager?.answers()]);
    await this.release();
    return found.includes(true) || !found.includes(false);
  }

  /** Returns what a service permits; what does not tell is tried, each operation on a connection of its own. */
  async #offersOf(service: PeerService): Promise<readonly Operation[]> {
    const known = this.#offers.get(service);
    if (known !== undefined) return known;
    const offers: Operation[] = service.needsTrial ? [] : [...possible(service)];
    for (const operation of service.needsTrial ? OPERATIONS : []) {
      if (this.#missing.has(service)) break;
      const responder = await this.#connect(service, { psn: randomPsn() });
      if (responder !== undefined && (await isCarriedOut(responder, operation))) offers.push(operation);
      await this.release();
    }
    if (offers.length === 0 && !this.#missing.has(service)) this.#missing.set(service, 'it carries out no request');
    this.#offers.set(service, offers);
    return offers;
  }

  /** Connects a queue pair that permits what its service was found to permit. */
  async #connectTried(
    service: PeerService,
    start: Start,
    offers: readonly Operation[],
  ): Promise<Responder | undefined> {
    const permits = REMOTE.filter((one) => offers.includes(one));
    if (!offers.includes('SEND')) {
      const responder = await this.#connect(service, start);
      return responder && { ...responder, permits, receives: 0 };
    }
    // the server answers before it posts its receives: a SEND that takes the first one shows that they are there
    const responder = await this.#connect(service, { ...start, psn: (start.psn - 1) & 0xffffff });
    if (responder === undefined) return undefined;
    if (await isCarriedOut(responder, 'SEND'))
      return { ...responder, psn: (responder.psn + 1) & 0xffffff, permits, receives: responder.receives - 1 };
    this.#missing.set(service, 'it posts no receives');
    return undefined;
  }

  async #connect(service: PeerService, start: Start): Promise<Responder | undefined> {
    const served = await this.#serve(service, start, (end) => service.connect(end));
    if (served === undefined) return undefined;
    const { region, ...responder } = served;
    if (region !== undefined) return { ...responder, region };
    this.#missing.set(
      service,
      'it offers no memory of 16 KiB or more that can be written, read and changed by atomics',
    );
    return undefined;
  }

  /** Connects a queue pair by a service, until `release`. @returns undefined when the peer does not serve it */
  async #serve<Served extends { close(): Promise<void> }>(
    service: PeerService | RequesterService,
    { psn, mtu: most }: Start,
    connect: (end: ScriptedEnd) => Promise<Served>,
  ): Promise<Omit<Served, 'close'> | undefined> {
    const { device } = this.#options;
    const { qpn: ours, queue } = await this.#queues.open(this.#open);
    const port = async ({ address, qpNum: qpn, mtu }: PeerEnd) =>
      new LinkPort(queue, await flowTo(device, address, ours, qpn), mtu);
    try {
      const { close, ...served } = await connect({
        device,
        qpNum: ours,
        psn,
        ...(most !== undefined && { mtu: most }),
        port,
      });
      this.#open.add({ close });
      this.#served.set(service, () => this.#serve(service, { psn: randomPsn() }, connect));
      return served;
    } catch (error) {
      this.#missing.set(service, errorReport(error).message);
      return undefined;
    }
  }
}

/** The most rights that a service gives. */
const possible = ({ hasReceives }: PeerService): readonly Operation[] => (hasReceives ? OPERATIONS : REMOTE);

/** PSNs differ from connection to connection, so that packets of an old one mean nothing to a new one. */
const randomPsn = () => Math.floor(Math.random() * 2 ** 24);
