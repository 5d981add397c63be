/** The other end, as whoever connected knows it. */
export interface Peer {
  readonly address: string;
  readonly port: number;
  /** What it sent along when the connection was made, with what fills the message up. */
  readonly privateData: Uint8Array;
  /** Says goodbye to it; resolves when it has heard, or will not. */
  leave(): Promise<void>;
}
