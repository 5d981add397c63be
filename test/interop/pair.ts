/** Connects our card with rxe, and compares the memory of both ends with its expected contents. */
import { crc32 } from 'node:zlib';
import { expect } from 'vitest';
import type { CardEnd, OurDevice } from './card.js';
import type { End, EndOptions } from './end.js';
import { GUEST } from './guest/network.js';
import { type Peer, patternBytes } from './guest/peer.js';
import { RxeEnd } from './rxe.js';

export type Family = 'IPv4' | 'IPv6';

/** The GID index of a family's address in rxe (guest.ts), and the address. */
export const FAMILIES = {
  IPv4: { gid: 1, guest: GUEST.ipv4 },
  IPv6: { gid: 2, guest: GUEST.ipv6 },
} as const;

export interface Pair extends AsyncDisposable {
  readonly card: CardEnd;
  readonly rxe: RxeEnd;
}

/** Returns two connected ends. @param both options of both ends */
export async function connectPair(
  { ours, peer, family }: { readonly ours: OurDevice; readonly peer: Peer; readonly family: Family },
  both: EndOptions = {},
  { card: cardOnly = {}, rxe: rxeOnly = {} }: { readonly card?: EndOptions; readonly rxe?: EndOptions } = {},
): Promise<Pair> {
  const card = await ours.end(FAMILIES[family].guest, { ...both, ...cardOnly });
  const rxe = await RxeEnd.create(peer, { ...both, ...rxeOnly });
  await card.connect(rxe.introduction);
  await rxe.connect(card.introduction);
  return {
    card,
    rxe,
    async [Symbol.asyncDispose]() {
      await rxe[Symbol.asyncDispose]();
      await card[Symbol.asyncDispose]();
    },
  };
}

/** The expected contents of an end's whole region: a pattern first, then the changes of the test. */
export class Expected {
  readonly bytes: Buffer;

  static async fill(end: End, seed: number): Promise<Expected> {
    await end.fill(seed);
    return new Expected(end, seed);
  }

  private constructor(
    readonly end: End,
    seed: number,
  ) {
    this.bytes = Buffer.from(patternBytes(end.size, seed));
  }

  set(offset: number, bytes: Uint8Array): void {
    this.bytes.set(bytes, offset);
  }

  /** Fails at the first byte that differs. */
  async check(): Promise<void> {
    if ((await this.end.crc()) === crc32(this.bytes)) return;
    const found = await this.end.get(0, this.end.size);
    const at = found.findIndex((byte, i) => byte !== this.bytes[i]);
    const hex = (bytes: Buffer) => bytes.subarray(at, at + 32).toString('hex');
    expect.fail(`${this.end.name} differs from byte ${at} on: has ${hex(found)}, should have ${hex(this.bytes)}`);
  }
}
