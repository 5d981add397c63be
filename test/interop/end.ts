/**
 * One end of a connection, ours or rxe's, with a common interface, so that a test runs with either end as requester and
 * as responder. Numbers are those of ibv_wc_status, ibv_wc_opcode and ibv_access_flags for both.
 */

/** A piece of an end's region: offset and length in bytes. */
export type Piece = readonly [offset: number, length: number];

export type Operation = 'send' | 'send_imm' | 'send_inv' | 'write' | 'write_imm' | 'read' | 'cas' | 'faa';

export interface Request {
  readonly op: Operation;
  readonly id?: number;
  readonly pieces?: readonly Piece[];
  /** Offset in the other end's region. `at` with `rkey` gives any address instead. */
  readonly offset?: number;
  readonly at?: bigint;
  readonly rkey?: number;
  readonly imm?: number;
  readonly inv?: number;
  readonly compare?: bigint;
  readonly swap?: bigint;
  readonly add?: bigint;
  readonly inline?: boolean;
  readonly fence?: boolean;
  readonly solicited?: boolean;
}

export interface Completion {
  readonly id: number;
  readonly status: number;
  /** This field and the following ones are undefined unless the status is 0. */
  readonly opcode?: number;
  readonly byteLen?: number;
  readonly imm?: number;
  readonly inv?: number;
}

/** Memory that an end has registered for its peer's access. */
export interface Region {
  readonly addr: bigint;
  readonly rkey: number;
}

/** Attributes of a queue pair, with the defaults in parentheses; both kinds of end have the same defaults. */
export interface EndOptions {
  /** RC. */
  readonly type?: 'RC' | 'UC';
  /** Path MTU in bytes (1024). */
  readonly mtu?: number;
  /** Rights of the other end: ibv_access_flags (all). */
  readonly access?: number;
  /** Rights of the region: ibv_access_flags (all). */
  readonly regionAccess?: number;
  /** Bytes of the region (64 KiB). */
  readonly size?: number;
  readonly sge?: number;
  readonly inline?: number;
  /** ACK timeout, 4.096 us * 2^timeout (18: about a second, because rxe runs on an emulated processor). */
  readonly timeout?: number;
  readonly retry?: number;
  readonly rnr?: number;
  readonly minRnr?: number;
  /** READs and atomics that it has outstanding as requester and as responder. */
  readonly rdAtomic?: number;
  readonly destRdAtomic?: number;
  readonly psn?: number;
  /** End-to-end credits of our card; rxe does not support them (off). */
  readonly flowControl?: boolean;
  /** Traffic class of the IP headers (0). */
  readonly trafficClass?: number;
  /** Work requests of the send queue (64). */
  readonly sendWr?: number;
}

/** Options with all defaults filled in, except the first PSN. */
export type FullOptions = Required<Omit<EndOptions, 'psn'>> & Pick<EndOptions, 'psn'>;

export const END_DEFAULTS: FullOptions = {
  type: 'RC',
  mtu: 1024,
  access: 15,
  regionAccess: 15,
  size: 65536,
  sge: 32,
  inline: 256,
  timeout: 18,
  retry: 7,
  rnr: 7,
  minRnr: 12,
  rdAtomic: 4,
  destRdAtomic: 4,
  trafficClass: 0,
  sendWr: 64,
  flowControl: false,
};

/** ibv_access_flags. */
export const LOCAL_WRITE = 1;
export const REMOTE_WRITE = 2;
export const REMOTE_READ = 4;
export const REMOTE_ATOMIC = 8;
export const MW_BIND = 16;

/** The data that two ends exchange before they connect. */
export interface Introduction extends Region {
  readonly qpn: number;
  readonly psn: number;
  /** 32 hexadecimal digits. */
  readonly gid: string;
}

export interface End extends AsyncDisposable {
  readonly name: 'our card' | 'rxe';
  readonly size: number;
  readonly introduction: Introduction;
  connect(to: Introduction): Promise<void>;
  /** Fills the whole region with patternBytes. */
  fill(seed: number): Promise<void>;
  put(offset: number, bytes: Uint8Array): Promise<void>;
  get(offset: number, length: number): Promise<Buffer>;
  /** Returns the CRC-32 of the whole region. */
  crc(): Promise<number>;
  postRecv(pieces?: readonly Piece[], id?: number): Promise<void>;
  /** Posts a signaled send work request. */
  postSend(request: Request): Promise<void>;
  /** Returns exactly `count` completions. @throws Error when they do not arrive within `ms` */
  completions(count: number, ms?: number): Promise<Completion[]>;
  /** Returns the ibv_qp_state. */
  state(): Promise<number>;
  /** Moves the queue pair to ERR. */
  fail(): Promise<void>;
  /** Registers another region of the same protection domain. @param access ibv_access_flags */
  register(size: number, access: number): Promise<Region>;
  /**
   * Returns 4 KiB with a key that SEND with invalidate may close: of ours a region, of rxe a window on its own region.
   */
  invalidatable(access: number): Promise<Region>;
}
