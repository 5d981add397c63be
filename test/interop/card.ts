/** Our end of a connection: a queue pair of a device with one of our links. */
import { crc32 } from 'node:zlib';
import { gidToHex } from '../../src/base/gid.js';
import {
  Access,
  type Cq,
  type Device,
  type Mr,
  type OpenOptions,
  openDevice,
  type Pd,
  type Qp,
  type SendWr,
  type Wc,
  WcOpcode,
} from '../../src/index.js';
import { faultLink } from '../../src/link/fault/link.js';
import type { FaultOptions } from '../../src/link/fault/options.js';
import type { Link } from '../../src/link/link.js';
import { PacketLink } from '../../src/link/packet.js';
import { pcapLink } from '../../src/link/pcap.js';
import { UdpLink } from '../../src/link/udp.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import {
  type Completion,
  END_DEFAULTS,
  type End,
  type EndOptions,
  type FullOptions,
  type Introduction,
  type Piece,
  type Region,
  type Request,
} from './end.js';
import { GatedLink } from './gatedlink.js';
import { CARD } from './guest/network.js';
import { patternBytes } from './guest/peer.js';
import { WireTap } from './wiretap.js';

export type LinkKind = 'packet' | 'udp' | 'xdp';
export type MemoryOwner = 'card' | 'program';

export interface CardOptions {
  /** The mode of the device. */
  readonly mode?: OpenOptions['mode'];
  /** Whether the link may compute its part of the ICRC. Default true. */
  readonly icrcOffload?: boolean;
  readonly faults?: FaultOptions;
  /** A capture file of our frames on the network, after the faults. */
  readonly pcap?: string;
  /** Records the frames that the card itself sends and receives, before the faults. */
  readonly tap?: boolean;
  /** Puts gates between the network and the card, for frames that `tap` has not seen. */
  readonly gates?: boolean;
  readonly memoryBytes?: number;
  /** Owner of the memory that ends register: the card, or this program. Default: the card. */
  readonly memory?: MemoryOwner;
  /** The number of decisions that the device keeps. */
  readonly decisions?: OpenOptions['decisions'];
  /** Resolves the route to a peer in place of the kernel. */
  readonly resolve?: Link['resolve'];
}

/** Our device on card0. */
export class OurDevice implements AsyncDisposable {
  /** Those that are open. */
  static readonly all = new Set<OurDevice>();

  static async open(kind: LinkKind, options: CardOptions = {}): Promise<OurDevice> {
    const where = { interface: CARD.interface };
    let link: Link = { packet: PacketLink, udp: UdpLink, xdp: XdpLink }[kind].open(where);
    if (options.resolve) link.resolve = options.resolve;
    if (options.pcap !== undefined) link = pcapLink(link, options.pcap);
    if (options.faults !== undefined) link = faultLink(link, options.faults);
    const gates = options.gates ? new GatedLink(link) : undefined;
    link = gates ?? link;
    const tap = options.tap ? new WireTap() : undefined;
    if (tap) link = pcapLink(link, tap);
    const { mode, decisions, icrcOffload = true, memoryBytes = 32 * 2 ** 20 } = options;
    const device = await openDevice({
      link,
      memoryBytes,
      icrcOffload,
      ...(mode && { mode }),
      ...(decisions && { decisions }),
    });
    return new OurDevice(device, tap, gates, options.memory ?? 'card');
  }

  private constructor(
    readonly device: Device,
    readonly tap: WireTap | undefined,
    readonly gates: GatedLink | undefined,
    readonly memory: MemoryOwner,
  ) {
    OurDevice.all.add(this);
  }

  /** @param toward an address of the peer, which selects our own address */
  async end(toward: string, options: EndOptions = {}): Promise<CardEnd> {
    return CardEnd.create(this.device, toward, options, this.memory);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.device.close({ force: true });
    OurDevice.all.delete(this);
  }
}

export class CardEnd implements End {
  readonly name = 'our card';
  readonly introduction: Introduction;
  #remote: Introduction | undefined;

  static async create(
    device: Device,
    toward: string,
    options: EndOptions = {},
    memory: MemoryOwner = 'card',
  ): Promise<CardEnd> {
    const all: FullOptions = { ...END_DEFAULTS, ...options };
    const { type, sge, inline, sendWr } = all;
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: 256 });
    const source = memory === 'card' ? all.size : new Uint8Array(all.size);
    const mr = await pd.regMr(source, { access: all.regionAccess });
    const qp = await pd.createQp({
      type,
      sendCq: cq,
      maxSendWr: sendWr,
      maxSendSge: sge,
      maxRecvSge: sge,
      maxInlineData: inline,
    });
    if (type === 'RC') qp.flowControl = all.flowControl;
    return new CardEnd(device, pd, cq, mr, qp, toward, all);
  }

  private constructor(
    readonly device: Device,
    readonly pd: Pd,
    readonly cq: Cq,
    readonly mr: Mr,
    readonly qp: Qp,
    toward: string,
    readonly options: FullOptions,
  ) {
    const { qpNum: qpn, psn, gid } = qp.endpoint(toward);
    const { addr, rkey } = mr.remote;
    this.introduction = { qpn, psn: options.psn ?? psn, gid: gidToHex(gid), addr: BigInt(addr), rkey };
  }

  get size(): number {
    return this.mr.length;
  }

  async connect(to: Introduction): Promise<void> {
    const { type, mtu, access, timeout, retry, rnr, minRnr, rdAtomic, destRdAtomic, trafficClass } = this.options;
    const isReliable = type === 'RC';
    const { gid, psn } = this.introduction;
    const sgidIndex = this.device.gids.findIndex((entry) => gidToHex(entry.gid) === gid);
    this.#remote = to;
    await this.qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
    await this.qp.modify({
      ...{ state: 'RTR', ahAttr: { grh: { dgid: to.gid, sgidIndex, trafficClass } }, pathMtu: mtu },
      ...{ destQpNum: to.qpn, rqPsn: to.psn },
      ...(isReliable && { maxDestRdAtomic: destRdAtomic, minRnrTimer: minRnr }),
    });
    await this.qp.modify({
      ...{ state: 'RTS', sqPsn: psn },
      ...(isReliable && { timeout, retryCnt: retry, rnrRetry: rnr, maxRdAtomic: rdAtomic }),
    });
  }

  async fill(seed: number): Promise<void> {
    this.mr.buffer.set(patternBytes(this.size, seed));
  }

  async put(offset: number, bytes: Uint8Array): Promise<void> {
    this.mr.buffer.set(bytes, offset);
  }

  async get(offset: number, length: number): Promise<Buffer> {
    return Buffer.from(this.mr.buffer.subarray(offset, offset + length));
  }

  async crc(): Promise<number> {
    return crc32(Buffer.from(this.mr.buffer));
  }

  async postRecv(pieces: readonly Piece[] = [], id = 0): Promise<void> {
    this.qp.postRecv({ wrId: id, sgList: this.#pieces(pieces) });
  }

  async postSend(request: Request): Promise<void> {
    this.qp.postSend(this.#workRequest(request));
  }

  async completions(count: number, ms = 20_000): Promise<Completion[]> {
    const found: Completion[] = [];
    const signal = AbortSignal.timeout(ms);
    while (found.length < count) {
      const wc = await this.cq.next({ signal }).catch((cause) => {
        const { progress, state } = this.qp.query();
        const said = JSON.stringify({ found, state, progress, counters: positive(this.qp.counters()) });
        throw new Error(`our card: ${found.length} of ${count} completions within ${ms} ms: ${said}`, { cause });
      });
      found.push(meaning(wc));
    }
    return found;
  }

  async state(): Promise<number> {
    return ['RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'].indexOf(this.qp.state);
  }

  async fail(): Promise<void> {
    await this.qp.modify({ state: 'ERR' });
  }

  async register(size: number, access: number): Promise<Region> {
    const { addr, rkey } = (await this.pd.regMr(size, { access })).remote;
    return { addr: BigInt(addr), rkey };
  }

  async invalidatable(access: number): Promise<Region> {
    return this.register(4096, access | Access.LOCAL_WRITE | Access.INVALIDATE);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.qp.close();
    await this.cq.close();
  }

  #pieces(pieces: readonly Piece[]) {
    return pieces.map(([offset, length]) => this.mr.sge(offset, length));
  }

  #workRequest(request: Request): SendWr {
    const { op, id = 0, pieces = [], offset = 0, at, imm = 0, inv = 0, compare = 0n, swap = 0n, add = 0n } = request;
    const { inline, fence, solicited } = request;
    const to = this.#remote as Introduction;
    const all = {
      ...{ wrId: id, sgList: this.#pieces(pieces), immData: imm, invalidateRkey: inv },
      ...{ remoteAddr: at ?? to.addr + BigInt(offset), rkey: request.rkey ?? to.rkey },
      ...{ compareAdd: op === 'faa' ? add : compare, swap },
      ...(inline && { inline }),
      ...(fence && { fence }),
      ...(solicited && { solicited }),
    };
    return { opcode: OPCODES[op], ...all } as SendWr;
  }
}

const OPCODES = {
  send: 'SEND',
  send_imm: 'SEND_WITH_IMM',
  send_inv: 'SEND_WITH_INV',
  write: 'RDMA_WRITE',
  write_imm: 'RDMA_WRITE_WITH_IMM',
  read: 'RDMA_READ',
  cas: 'ATOMIC_CMP_AND_SWP',
  faa: 'ATOMIC_FETCH_AND_ADD',
} as const;

function meaning(wc: Wc): Completion {
  const { wrId: id, status, opcode } = wc;
  if (!wc.ok) return { id, status };
  return {
    ...{ id, status, opcode },
    ...(opcode >= WcOpcode.RECV && { byteLen: wc.byteLen }),
    ...(wc.hasImm && { imm: wc.immData }),
    ...(wc.hasInvalidated && { inv: wc.invalidatedRkey }),
  };
}

/** Returns the non-zero counters. */
export function positive(counters: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(counters).filter(([, count]) => count > 0));
}
