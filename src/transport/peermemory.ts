/** Memory of a peer, as the messages of protocols name it. Numbers of a peer are checked where they are decoded. */

/** Memory of the other end of a connection. */
export interface PeerMemory {
  /** Address of the first byte, 64 bits. */
  readonly addr: bigint;
  /** Remote key, 32 bits. */
  readonly rkey: number;
  /** Bytes, 32 bits. */
  readonly length: number;
}

/** Addresses have 64 bits (IBTA 9.4.3, virtual address of the RETH). */
const ADDRESSES = 2n ** 64n;

/**
 * Returns memory whose bytes all have an address.
 * @param what name of the memory, for the error
 * @param broken makes the error of a peer that does not keep to the protocol
 * @throws the error of `broken`, when the memory ends beyond the last address
 */
export function checkPeerMemory<M extends Pick<PeerMemory, 'addr' | 'length'>>(
  what: string,
  memory: M,
  broken: (why: string) => Error,
): M {
  if (!hasAddresses(memory.addr, memory.length))
    throw broken(`${what} has ${memory.length} bytes at address 0x${memory.addr.toString(16)}, and ends beyond 2^64`);
  return memory;
}

/** Whether each of `bytes` bytes from an address on has an address. */
export function hasAddresses(addr: bigint, bytes: number): boolean {
  return addr + BigInt(bytes) <= ADDRESSES;
}
