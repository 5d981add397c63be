/** The other end of a connection, as the code that established it knows it. */
export interface Peer {
  readonly address: string;
  readonly port: number;
  /** Private data of its connection request or reply. */
  readonly privateData: Uint8Array;
  /** Largest message that it receives, in bytes, if it has said so. */
  readonly messageBytes?: number | undefined;
  /** Disconnects from the peer. Resolves when the peer has answered, or is given up. */
  disconnect(): Promise<void>;
}
