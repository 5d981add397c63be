/**
 * Resolving a service to a datagram queue pair: SIDR_REQ and SIDR_REP, one of each (IBTA 12.11). There is no connection
 * afterwards, and nothing to end.
 */
import { VerbsError } from '../errors.js';
import { gidText } from '../verbs/gid.js';
import { mayTalk } from './admission.js';
import { CMA_HDR_BYTES, type CmaHdr, parseCmaHdr, withCmaHdr } from './cmahdr.js';
import type { CmAddress, DatagramPeer } from './events.js';
import { chooseListener, type Listener, type Listeners } from './listeners.js';
import type { Expiring, Manager, Outgoing, Route } from './manager.js';
import type { Message } from './messages.js';
import { isServedByOthers } from './neighbours.js';
import { SidrStatus } from './reasons.js';
import { parseServiceId, serviceId } from './serviceid.js';
import { MAX_CM_RETRIES, milliseconds, RESPONSE_TIMEOUT } from './times.js';

const NOTHING: Uint8Array = new Uint8Array(0);

export interface SidrParameters {
  readonly source: CmAddress;
  readonly destination: CmAddress;
  readonly privateData: Uint8Array;
}

/** A question of ours. */
export class SidrRequest implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  place = -1;
  readonly #out: Outgoing;
  #left = MAX_CM_RETRIES;

  constructor(
    readonly manager: Manager,
    readonly id: number,
    { source, destination, privateData }: SidrParameters,
    readonly onEnd: (request: SidrRequest) => void,
  ) {
    const hdr = { source: source.address, destination: destination.address, sourcePort: source.port };
    const route = { local: source.address, remote: destination.address };
    this.#out = manager.send(route, 'SIDR_REQ', manager.tidOf(id), {
      requestId: id,
      pkey: manager.partitions.ownPkey,
      serviceId: serviceId('UDP', destination.port),
      privateData: withCmaHdr(hdr, privateData),
    });
    this.#arm();
  }

  onSidrRep({ status, qpn, qkey, privateData }: Message<'SIDR_REP'>): void {
    const { id, manager } = this;
    this.close();
    if (status === SidrStatus.SUCCESS)
      manager.tell({ type: 'ESTABLISHED', id, privateData, datagram: { qpNum: qpn, qkey } });
    else manager.tell({ type: 'UNREACHABLE', id, status, privateData });
  }

  onDeadline(): void {
    if (this.#left-- > 0) {
      this.manager.repeat('SIDR_REQ', this.#out);
      this.#arm();
      return;
    }
    this.close();
    this.manager.tell({ type: 'UNREACHABLE', id: this.id, status: 0, privateData: NOTHING });
  }

  /** Forgets the question. */
  close(): void {
    this.manager.deadlines.clear(this);
    this.onEnd(this);
  }

  #arm(): void {
    this.manager.deadlines.set(this, this.manager.now + milliseconds(RESPONSE_TIMEOUT));
  }
}

/** A question of a peer's. It stays known for a while after its answer, as the answer may be lost. */
export class SidrInquiry implements Expiring {
  deadline = Number.POSITIVE_INFINITY;
  place = -1;
  #answer: Outgoing | undefined;

  constructor(
    readonly manager: Manager,
    readonly id: number,
    readonly key: string,
    readonly route: Route,
    readonly request: Message<'SIDR_REQ'>,
    readonly listener: Listener,
    readonly onEnd: (inquiry: SidrInquiry) => void,
  ) {
    listener.undecided++;
  }

  /** @throws VerbsError EINVAL when it was answered before */
  answer(status: number, privateData: Uint8Array, peer?: DatagramPeer): void {
    if (this.#answer !== undefined)
      throw new VerbsError('EINVAL', `request 0x${this.id.toString(16)} was answered before`);
    this.listener.undecided--;
    this.#answer = answerTo(this.manager, this.route, this.request, status, privateData, peer);
    // as long as the peer may ask twice more
    this.manager.deadlines.set(this, this.manager.now + 2 * milliseconds(RESPONSE_TIMEOUT));
  }

  onDuplicate(): void {
    this.manager.count('rx_duplicates', 'SIDR_REQ');
    if (this.#answer !== undefined) this.manager.repeat('SIDR_REP', this.#answer);
  }

  onDeadline(): void {
    this.onEnd(this);
  }

  /** The program has no more interest. */
  close(): void {
    if (this.#answer === undefined) this.answer(SidrStatus.REJECT, NOTHING);
  }
}

/** All questions of a core. */
export class Sidr {
  readonly #requests = new Map<number, SidrRequest>();
  readonly #inquiries = new Map<number, SidrInquiry>();
  readonly #byKey = new Map<string, SidrInquiry>();

  constructor(
    readonly manager: Manager,
    readonly listeners: Listeners,
  ) {}

  ask(id: number, parameters: SidrParameters): void {
    const end = () => {
      this.#requests.delete(id);
      this.manager.requests.delete(id);
    };
    this.manager.requests.add(id);
    this.#requests.set(id, new SidrRequest(this.manager, id, parameters, end));
  }

  /** Numbers of all questions. */
  get ids(): number[] {
    return [...this.#requests.keys(), ...this.#inquiries.keys()];
  }

  find(id: number): SidrRequest | SidrInquiry | undefined {
    return this.#requests.get(id) ?? this.#inquiries.get(id);
  }

  onSidrReq(request: Message<'SIDR_REQ'>, route: Route): void {
    const { manager } = this;
    // a peer numbers its questions; another peer may use the same numbers
    const key = `${route.remote}/${request.requestId}/${request.serviceId}`;
    const known = this.#byKey.get(key);
    const listener = known ? undefined : this.#listenerFor(request, route);
    if (known !== undefined) known.onDuplicate();
    else if (typeof listener === 'number' && isServedByOthers(manager.others, request, route))
      manager.count('ignored', request.name);
    else if (typeof listener === 'number') answerTo(manager, route, request, listener, NOTHING);
    else if (listener !== undefined) this.#inquire(key, request, route, listener);
  }

  onSidrRep(reply: Message<'SIDR_REP'>): void {
    const request = this.#requests.get(reply.requestId);
    if (request === undefined) this.manager.count('ignored', 'SIDR_REP');
    else request.onSidrRep(reply);
  }

  /** Who is asked for; or the status of the refusal. */
  #listenerFor({ serviceId, privateData }: Message<'SIDR_REQ'>, { local }: Route): Listener | number {
    const service = parseServiceId(serviceId);
    const candidates = service?.space === 'UDP' ? this.listeners.on('UDP', service.port) : [];
    if (candidates.length === 0) return SidrStatus.UNSUPPORTED;
    const hdr = parseCmaHdr(privateData);
    if (hdr === undefined || !mayTalk(hdr, local)) return SidrStatus.REJECT;
    const listener = chooseListener(candidates, hdr.destination);
    return listener !== undefined && listener.undecided < listener.backlog ? listener : SidrStatus.REJECT;
  }

  #inquire(key: string, request: Message<'SIDR_REQ'>, route: Route, listener: Listener): void {
    const { manager } = this;
    const hdr = parseCmaHdr(request.privateData) as CmaHdr;
    const id = manager.newId();
    manager.requests.add(id);
    const inquiry = new SidrInquiry(manager, id, key, route, request, listener, () => this.#forget(inquiry));
    this.#inquiries.set(id, inquiry);
    this.#byKey.set(key, inquiry);
    manager.tell({
      type: 'CONNECT_REQUEST',
      id,
      listener: listener.handle,
      request: {
        space: 'UDP',
        transport: 'UD',
        source: { address: hdr.source, port: hdr.sourcePort },
        destination: { address: hdr.destination, port: listener.port },
        remoteGid: gidText(route.remote),
        localGid: gidText(route.local),
        responderResources: 0,
        initiatorDepth: 0,
        retryCount: 0,
        rnrRetryCount: 0,
        flowControl: false,
        srq: false,
        qpNum: 0,
        pathMtu: 0,
        privateData: request.privateData.subarray(CMA_HDR_BYTES),
      },
    });
  }

  #forget(inquiry: SidrInquiry): void {
    this.manager.requests.delete(inquiry.id);
    this.#inquiries.delete(inquiry.id);
    this.#byKey.delete(inquiry.key);
  }
}

function answerTo(
  manager: Manager,
  route: Route,
  { tid, requestId, serviceId }: Message<'SIDR_REQ'>,
  status: number,
  privateData: Uint8Array,
  peer?: DatagramPeer,
): Outgoing {
  const where = peer ? { qpn: peer.qpNum, qkey: peer.qkey } : {};
  return manager.send(route, 'SIDR_REP', tid, { requestId, status, serviceId, privateData, ...where });
}
