/** Helpers for datagrams, groups and shared receive queues of a bare card, in addition to the rig. */
import { ipBytes } from '../../src/probe/packet/address.js';
import { type ConnectOptions, type Piece, placeWords, type Rig, type RigQp } from './rig.js';

/** The Q_Key of datagram conversations. */
export const QKEY = 0x1234;
/** The destination queue pair number of multicast packets. */
export const MULTICAST_QPN = 0xffffff;

/** Returns 16 bytes; an IPv4 address as ::ffff:a.b.c.d. */
export function gidOf(address: string): Uint8Array {
  const bytes = ipBytes(address);
  return bytes.length === 16 ? bytes : Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ...bytes);
}

/** Sets the card's own addresses and the MTU of its port. */
export function openPort(rig: Rig, addresses: readonly string[], mtu: number): void {
  const at = rig.x.scratch();
  for (const [i, address] of addresses.entries()) rig.card.bytes.set(gidOf(address), at + 16 * i);
  const errno = rig.errno(rig.x.setPort(addresses.length, mtu));
  if (errno !== 'OK') throw new Error(`setPort: ${errno}`);
}

/** Creates an address handle, by default for the peer of a conversation. @throws Error when the card refuses */
export function createAh(qp: RigQp, options: Partial<ConnectOptions> = {}, pd = qp.rig.pd): number {
  qp.vector({ destQpn: 0, sqPsn: 0, rqPsn: 0, ...options });
  const ah = qp.rig.x.ahCreate(pd);
  if (ah === 0) throw new Error(`ahCreate: ${qp.rig.errno(qp.rig.x.lastErrno())}`);
  return ah;
}

/** Joins a group. @returns the name of the Errno */
export function attach({ rig, handle }: RigQp, group: string): string {
  rig.card.bytes.set(gidOf(group), rig.x.scratch());
  return rig.errno(rig.x.mcastAttach(handle));
}

export function detach({ rig, handle }: RigQp, group: string): string {
  rig.card.bytes.set(gidOf(group), rig.x.scratch());
  return rig.errno(rig.x.mcastDetach(handle));
}

/** A shared receive queue. */
export class RigSrq {
  readonly handle: number;

  constructor(
    readonly rig: Rig,
    wr = 64,
    sge = 4,
    readonly pd = rig.pd,
  ) {
    this.handle = rig.x.srqCreate(pd, wr, sge);
    if (this.handle === 0) throw new Error(`srqCreate: ${rig.errno(rig.x.lastErrno())}`);
  }

  /** Posts a receive. @returns the name of the Errno */
  recv(wrId: number, pieces: readonly Piece[] = []): string {
    const { rig, handle } = this;
    const { x } = rig;
    if (!x.srqBegin(handle, wrId)) return rig.errno(x.lastErrno());
    for (const piece of pieces) x.srqSge(handle, ...placeWords(piece.ptr), piece.length, piece.lkey);
    return rig.errno(x.srqCommit(handle));
  }

  resize(wr: number): string {
    return this.rig.errno(this.rig.x.srqResize(this.handle, wr));
  }

  limit(requests: number): string {
    return this.rig.errno(this.rig.x.srqLimit(this.handle, requests));
  }

  destroy(): string {
    return this.rig.errno(this.rig.x.srqDestroy(this.handle));
  }

  get filled(): number {
    return this.rig.x.srqFilled(this.handle);
  }

  get entries(): number {
    return this.rig.x.srqEntries(this.handle);
  }

  get currentLimit(): number {
    return this.rig.x.srqCurrentLimit(this.handle);
  }
}
