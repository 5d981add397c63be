/** The end that is asked for a connection (IBTA 12.9.7.2). */
import { gidText } from '../verbs/gid.js';
import { CMA_HDR_BYTES, type CmaHdr } from './cmahdr.js';
import { Connection, NOTHING } from './connection.js';
import { type DerivedAttributes, deriveAttributes, mtuBytes, type OwnChoice } from './derive.js';
import type { ConnectRequest } from './events.js';
import type { Listener } from './listeners.js';
import { message } from './mad.js';
import { type Manager, type Outgoing, type Route, refuse } from './manager.js';
import { type Message, Subject, Transport } from './messages.js';
import { RejectReason } from './reasons.js';
import { ACK_DELAY, milliseconds, requestPeriod, SERVICE_TIMEOUT } from './times.js';

/** What a REP is made from. */
export interface AcceptParameters {
  readonly qpNum: number;
  /** The first PSN that the peer shall send. */
  readonly startingPsn: number;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly rnrRetryCount: number;
  readonly flowControl: boolean;
  readonly srq: boolean;
  readonly privateData: Uint8Array;
}

export class PassiveConnection extends Connection {
  readonly role = 'passive';
  /** Our refusal, to be repeated when the peer has not heard it. */
  #refusal: Outgoing | undefined;
  #rep: Outgoing | undefined;

  constructor(
    manager: Manager,
    id: number,
    readonly req: Message<'REQ'>,
    readonly listener: Listener,
    hdr: CmaHdr,
  ) {
    const { localGid, remoteGid } = req.primary;
    super(manager, id, { local: gidText(remoteGid), remote: gidText(localGid) }, req.tid, 'REQ_RCVD');
    this.peer = { guid: req.localCaGuid, commId: req.localCommId, qpn: req.localQpn };
    manager.connections.addPeer(this);
    listener.undecided++;
    this.tell({ type: 'CONNECT_REQUEST', listener: listener.handle, request: requestOf(req, hdr, listener) });
  }

  get ownQpn(): number {
    return this.rep?.localQpn ?? 0;
  }

  protected get patience() {
    return { period: milliseconds(this.req.localResponseTimeout), retries: this.req.maxCmRetries };
  }

  /** The REP that `accept` would send, and what it means for our queue pair, which must be up before. */
  prepare(of: AcceptParameters, own: OwnChoice = {}): { rep: Message<'REP'>; attributes: DerivedAttributes } {
    if (this.state !== 'REQ_RCVD') throw this.wrongState('accept', 'REQ_RCVD');
    const rep = message('REP', this.tid, {
      localCommId: this.id,
      remoteCommId: this.peer.commId,
      localQpn: of.qpNum,
      startingPsn: of.startingPsn,
      responderResources: of.responderResources,
      initiatorDepth: of.initiatorDepth,
      targetAckDelay: ACK_DELAY,
      flowControl: of.flowControl ? 1 : 0,
      rnrRetryCount: of.rnrRetryCount,
      srq: of.srq ? 1 : 0,
      localCaGuid: this.manager.guid,
      privateData: of.privateData,
    });
    // there was one when the REQ was admitted, and the table does not change
    const pkeyIndex = this.manager.partitions.indexOf(this.req.pkey) as number;
    return { rep, attributes: deriveAttributes('passive', this.req, rep, pkeyIndex, own) };
  }

  accept(rep: Message<'REP'>): void {
    if (this.state !== 'REQ_RCVD') throw this.wrongState('accept', 'REQ_RCVD');
    const { period, retries } = this.patience;
    this.rep = rep;
    this.setState('REP_SENT');
    this.#rep = this.sendRepeated('REP', this.tid, rep, period, retries);
  }

  reject(reason: number, info: Uint8Array, privateData: Uint8Array): void {
    if (this.state !== 'REQ_RCVD') throw this.wrongState('reject', 'REQ_RCVD');
    this.#refusal = this.sendRej(Subject.REQ, reason, info, privateData);
    this.setState('REJ_SENT');
    this.manager.connections.releaseQpn(this);
    this.#rememberRefusal();
  }

  /** The same REQ once more. @param route whence it came, for a refusal */
  onDuplicateReq(req: Message<'REQ'>, route: Route): void {
    const { manager } = this;
    manager.count('rx_duplicates', 'REQ');
    switch (this.state) {
      case 'REQ_RCVD':
        this.send('MRA', this.tid, { messageMraed: Subject.REQ, serviceTimeout: SERVICE_TIMEOUT });
        break;
      case 'REJ_SENT':
        if (this.#refusal !== undefined) manager.repeat('REJ', this.#refusal);
        this.#rememberRefusal();
        break;
      case 'REP_SENT':
        if (this.#rep !== undefined) manager.repeat('REP', this.#rep);
        break;
      case 'TIMEWAIT':
        refuse(manager, route, req, Subject.REQ, RejectReason.STALE_CONNECTION);
    }
  }

  protected onRtu({ privateData }: Message<'RTU'>): boolean {
    if (this.state !== 'REP_SENT') return false;
    this.setState('ESTABLISHED');
    this.tell({ type: 'ESTABLISHED', privateData });
    return true;
  }

  /** Data has come: the peer is ready, whatever became of its RTU. */
  onData(): void {
    if (this.state !== 'REP_SENT') return;
    this.setState('ESTABLISHED');
    this.tell({ type: 'ESTABLISHED', privateData: NOTHING });
  }

  override onStale(): void {
    super.onStale();
    if (this.state !== 'REQ_RCVD' && this.state !== 'REP_SENT') return;
    this.setState('CLOSED');
    const reason = RejectReason.STALE_CONNECTION;
    this.tell({ type: 'REJECTED', reason, info: NOTHING, privateData: NOTHING });
  }

  protected override setState(to: Parameters<Connection['setState']>[0]): void {
    if (this.state === 'REQ_RCVD') this.listener.undecided--;
    super.setState(to);
  }

  protected giveUp(): void {
    if (this.state === 'REJ_SENT') {
      this.setState('CLOSED');
    } else {
      this.sendTimeout();
      this.setState('TIMEWAIT');
      this.tell({ type: 'UNREACHABLE', status: 0, privateData: NOTHING });
    }
  }

  protected abandon(): void {
    if (this.state === 'REQ_RCVD') this.reject(RejectReason.CONSUMER_DEFINED, NOTHING, NOTHING);
    // The peer may be established by now. A REJ could be lost and is never answered; a DREQ is, whatever the peer's state.
    else if (this.state === 'REP_SENT') this.release(NOTHING);
  }

  /** As long as the peer may ask twice more. */
  #rememberRefusal(): void {
    const { primary, remoteResponseTimeout } = this.req;
    const again = 2 * requestPeriod(primary.ackTimeout, remoteResponseTimeout);
    this.manager.deadlines.set(this, this.manager.now + again);
  }
}

function requestOf(req: Message<'REQ'>, hdr: CmaHdr, { space, port }: Listener): ConnectRequest {
  return {
    space,
    transport: req.transport === Transport.UC ? 'UC' : 'RC',
    source: { address: hdr.source, port: hdr.sourcePort },
    destination: { address: hdr.destination, port },
    remoteGid: gidText(req.primary.localGid),
    localGid: gidText(req.primary.remoteGid),
    responderResources: req.initiatorDepth,
    initiatorDepth: req.responderResources,
    retryCount: req.retryCount,
    rnrRetryCount: req.rnrRetryCount,
    flowControl: req.flowControl === 1,
    srq: req.srq === 1,
    qpNum: req.localQpn,
    pathMtu: mtuBytes(req.pathMtu),
    privateData: req.privateData.subarray(CMA_HDR_BYTES),
  };
}
