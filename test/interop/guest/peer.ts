/** Controls rxpeer (peer/peer.c), a verbs program on rxe that executes single verbs for a test. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { GuestCommand } from './command.js';
import type { Guest } from './guest.js';

/** A registered region of the peer. */
export interface PeerMr {
  readonly mr: number;
  readonly addr: bigint;
  readonly lkey: number;
  readonly rkey: number;
  readonly size: number;
}

export interface PeerQpOptions {
  readonly sendwr?: number;
  readonly recvwr?: number;
  readonly sendsge?: number;
  readonly recvsge?: number;
  /** Largest inline message in bytes. */
  readonly inline?: number;
  /** 1: all send work requests are signaled. */
  readonly sigall?: 0 | 1;
  /** Entries of its completion queue. */
  readonly cqe?: number;
  /** Rights of the other end: ibv_access_flags. */
  readonly access?: number;
  /** First PSN to send; default random. */
  readonly psn?: number;
  /** 1: the queue pair can post ATOMIC WRITE and FLUSH. */
  readonly ext?: 0 | 1;
  /** Default RC. */
  readonly type?: 'rc' | 'uc' | 'ud';
  /** Q_Key of a UD queue pair. */
  readonly qkey?: number;
  /** Shared receive queue of the queue pair. */
  readonly srq?: PeerSrq;
}

/** Attributes for connecting a queue pair. */
export interface PeerConnect {
  readonly dqpn: number;
  readonly dpsn: number;
  /** 32 hexadecimal digits. */
  readonly dgid: string;
  /** Path MTU in bytes (1024). */
  readonly mtu?: number;
  /** ACK timeout, 4.096 µs · 2^timeout (14). */
  readonly timeout?: number;
  readonly retry?: number;
  readonly rnr?: number;
  /** RNR timer code of its RNR NAKs (12). */
  readonly minrnr?: number;
  readonly rdatomic?: number;
  readonly destrdatomic?: number;
  readonly hop?: number;
  readonly tclass?: number;
  readonly flow?: number;
}

/** A piece of a region. */
export interface PeerSge {
  readonly mr: PeerMr;
  readonly off: number;
  readonly len: number;
}

export type PeerOp = 'send' | 'send_imm' | 'send_inv' | 'write' | 'write_imm' | 'read' | 'cas' | 'faa' | 'local_inv';
export type PeerFlag = 'signaled' | 'fence' | 'solicited' | 'inline';

export interface PeerSend {
  readonly id?: number;
  readonly op: PeerOp;
  readonly sge?: readonly PeerSge[];
  readonly raddr?: bigint;
  readonly rkey?: number;
  /** The immediate as a number; on the wire in network byte order. */
  readonly imm?: number;
  /** Key that send_inv or local_inv invalidates. */
  readonly inv?: number;
  readonly compare?: bigint;
  readonly swap?: bigint;
  readonly add?: bigint;
  /** For datagrams: the address handle, made by peer.ah. */
  readonly ah?: number;
  readonly dqpn?: number;
  readonly qkey?: number;
  /** Default: signaled. */
  readonly flags?: readonly PeerFlag[];
}

/** A completion with the fields of ibv_wc; opcode and byteLen are valid only with status 0. */
export interface PeerWc {
  readonly id: number;
  readonly status: number;
  readonly opcode: number;
  readonly byteLen: number;
  readonly flags: number;
  readonly imm: number;
  readonly inv: number;
  readonly qpn: number;
  /** Queue pair number of a datagram's sender. */
  readonly srcQp: number;
  readonly vendorErr: number;
}

export interface PeerQpState {
  /** The ibv_qp_state. */
  readonly state: number;
  readonly mtu: number;
  readonly sqpsn: number;
  readonly rqpsn: number;
  readonly retry: number;
  readonly rnr: number;
  readonly inline: number;
}

/** Returns the bytes of the peer's `fill`: xorshift32, the low byte of each state; seed 0 means 0x9e3779b9. */
export function patternBytes(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let x = seed >>> 0 || 0x9e3779b9;
  for (let i = 0; i < length; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    bytes[i] = x;
  }
  return bytes;
}

type Words = Readonly<Record<string, string | number | bigint | undefined>>;

/** One rxpeer process. It executes commands one after the other; start two processes for concurrent commands. */
export class Peer implements AsyncDisposable {
  /** Its GID, 32 hexadecimal digits. */
  gid = '';
  /** Active MTU in bytes. */
  mtu = 0;
  readonly #command: GuestCommand;
  readonly #answers: AsyncGenerator<string, void, void>;
  #last: Promise<unknown> = Promise.resolve();

  /** @param gid index in rxe's GID table: 1 is the first IPv4 address, 2 the first IPv6 address */
  static async start(guest: Guest, gid = 1): Promise<Peer> {
    const peer = new Peer(guest.spawn(['rxpeer']));
    const answer = await peer.command('open', { gid });
    peer.gid = answer.gid as string;
    peer.mtu = answer.mtu as number;
    return peer;
  }

  private constructor(command: GuestCommand) {
    this.#command = command;
    this.#answers = command.lines();
  }

  /**
   * Sends one command and waits for its result.
   * @throws Error with the peer's message when it refuses, has ended, or does not answer within `timeout` milliseconds
   */
  async command(name: string, words: Words = {}, timeout = 10_000): Promise<Record<string, unknown>> {
    const given = Object.entries(words).filter(([, value]) => value !== undefined);
    const line = [name, ...given.map(([key, value]) => `${key}=${value}`)].join(' ');
    const answered = this.#last.then(async () => {
      this.#command.write(`${line}\n`);
      return this.#answers.next();
    });
    this.#last = answered.catch(() => {});
    const patience = new AbortController();
    const answer = await Promise.race([
      answered,
      sleep(timeout, undefined, { signal: patience.signal, ref: false }).catch(() => undefined),
    ]);
    patience.abort();
    if (!answer) throw this.#command.error(`no answer to "${line}" within ${timeout} ms`);
    if (answer.done) throw this.#command.error(`ended at "${line}"`);
    const object: Record<string, unknown> = JSON.parse(answer.value);
    if (object.error !== undefined) throw new Error(`rxpeer: ${line}: ${object.error}`);
    return object;
  }

  /**
   * Registers zeroed memory.
   * @param access ibv_access_flags; all of local write, remote write, read, atomic by default
   */
  async reg(size: number, access?: number, iova?: bigint): Promise<PeerMr> {
    const answer = await this.command('reg', { size, access, iova });
    return { ...(answer as unknown as PeerMr), addr: BigInt(answer.addr as string) };
  }

  async dereg(mr: PeerMr): Promise<void> {
    await this.command('dereg', { mr: mr.mr });
  }

  /** Creates a queue pair in INIT with its own completion queue. */
  async qp({ srq, ...options }: PeerQpOptions = {}): Promise<PeerQp> {
    const answer = await this.command('qp', { ...options, srq: srq?.srq });
    return new PeerQp(this, answer.qp as number, answer.qpn as number, answer.psn as number);
  }

  /** Creates a shared receive queue for `wr` receives of one piece. */
  async srq(wr: number): Promise<PeerSrq> {
    return new PeerSrq(this, (await this.command('srq', { wr })).srq as number);
  }

  /** Sends an Ethernet frame out of eth0, past rxe. */
  async frame(bytes: Uint8Array): Promise<void> {
    await this.command('frame', { hex: Buffer.from(bytes).toString('hex') });
  }

  /** Creates an address handle. @param gid GID of a host or a group, 32 hexadecimal digits */
  async ah(gid: string): Promise<number> {
    return (await this.command('ah', { gid })).ah as number;
  }

  /** Fills part of a region with patternBytes. */
  async fill(mr: PeerMr, off: number, len: number, seed: number): Promise<void> {
    await this.command('fill', { mr: mr.mr, off, len, seed });
  }

  async write(mr: PeerMr, off: number, bytes: Uint8Array): Promise<void> {
    await this.command('write', { mr: mr.mr, off, hex: Buffer.from(bytes).toString('hex') });
  }

  async read(mr: PeerMr, off: number, len: number): Promise<Buffer> {
    const answer = await this.command('read', { mr: mr.mr, off, len });
    return Buffer.from(answer.hex as string, 'hex');
  }

  /** Returns the CRC-32 of part of a region, as crc32 of node:zlib. */
  async crc(mr: PeerMr, off: number, len: number): Promise<number> {
    return (await this.command('crc', { mr: mr.mr, off, len })).crc as number;
  }

  /** Returns the next asynchronous event, or undefined if there is none within `ms`. */
  async event(ms = 1000): Promise<{ event: number; name: string; qpn: number } | undefined> {
    const answer = await this.command('event', { ms }, ms + 10_000);
    return answer.event === null ? undefined : (answer as { event: number; name: string; qpn: number });
  }

  /** Ends the process, which destroys all its objects. */
  async close(): Promise<void> {
    this.#command.end();
    await this.#command.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

export class PeerQp {
  constructor(
    readonly peer: Peer,
    /** The peer's number of this object. */
    readonly qp: number,
    readonly qpn: number,
    /** First PSN to send. */
    readonly psn: number,
  ) {}

  /** Moves the queue pair to RTR and RTS. */
  async connect(to: PeerConnect): Promise<void> {
    await this.peer.command('connect', { qp: this.qp, ...to });
  }

  /** Moves a UD queue pair to RTR and RTS. */
  async activate(): Promise<void> {
    await this.peer.command('activate', { qp: this.qp });
  }

  /** Joins a group. @param gid 32 hexadecimal digits @param join 1 = at the IP level as well */
  async attach(gid: string, join: 0 | 1 = 1): Promise<void> {
    await this.peer.command('attach', { qp: this.qp, gid, join });
  }

  async postRecv(sge: readonly PeerSge[] = [], id = 0): Promise<void> {
    await this.peer.command('post_recv', { qp: this.qp, id, sge: pieces(sge) });
  }

  async postSend(send: PeerSend): Promise<void> {
    const { id = 0, sge = [], flags = ['signaled'], ...rest } = send;
    await this.peer.command('post_send', {
      qp: this.qp,
      id,
      sge: pieces(sge),
      flags: flags.join(',') || undefined,
      ...rest,
    });
  }

  /** Posts a signaled ATOMIC WRITE of the eight bytes of `mr` at `off`. The queue pair needs the option `ext`. */
  async atomicWrite(mr: PeerMr, off: number, raddr: bigint, rkey: number, id = 0): Promise<void> {
    await this.peer.command('post_ext', { qp: this.qp, id, op: 'atomic_write', mr: mr.mr, off, raddr, rkey });
  }

  /** Posts a signaled FLUSH for global visibility. The queue pair needs the option `ext`. */
  async flush(raddr: bigint, rkey: number, len: number, sel: 'range' | 'mr' = 'range', id = 0): Promise<void> {
    await this.peer.command('post_ext', { qp: this.qp, id, op: 'flush', raddr, rkey, len, sel });
  }

  /** Posts a signaled bind of a type 2 memory window. @returns its rkey */
  async bind(mr: PeerMr, off: number, len: number, access: number, id = 0): Promise<number> {
    return (await this.peer.command('bind', { qp: this.qp, id, mr: mr.mr, off, len, access })).rkey as number;
  }

  /** Returns up to `n` completions, fewer if `ms` milliseconds have passed. */
  async poll(n = 1, ms = 5000): Promise<PeerWc[]> {
    return (await this.peer.command('poll', { qp: this.qp, n, ms }, ms + 10_000)).wc as PeerWc[];
  }

  async state(): Promise<PeerQpState> {
    return (await this.peer.command('state', { qp: this.qp })) as unknown as PeerQpState;
  }

  async modify(state: 'err' | 'reset'): Promise<void> {
    await this.peer.command('modify', { qp: this.qp, state });
  }

  async destroy(): Promise<void> {
    await this.peer.command('destroy', { qp: this.qp });
  }
}

export class PeerSrq {
  constructor(
    readonly peer: Peer,
    /** The peer's number of this object. */
    readonly srq: number,
  ) {}

  async postRecv(sge: readonly PeerSge[] = [], id = 0): Promise<void> {
    await this.peer.command('post_recv', { srq: this.srq, id, sge: pieces(sge) });
  }

  /** Sets another size, or a limit below which an event is raised. @returns the values that rxe has set */
  async modify(to: { readonly wr?: number; readonly limit?: number }): Promise<{ wr: number; limit: number }> {
    return (await this.peer.command('modify_srq', { srq: this.srq, ...to })) as { wr: number; limit: number };
  }
}

function pieces(sge: readonly PeerSge[]): string | undefined {
  return sge.map(({ mr, off, len }) => `${mr.mr}:${off}:${len}`).join(',') || undefined;
}
