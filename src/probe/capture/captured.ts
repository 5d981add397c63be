/** Packets of a capture, in whatever file they are. */

/** A packet of a capture. */
export interface CapturedPacket {
  /** Nanoseconds since 1970. */
  time: bigint;
  /** The frame from its first byte, as far as it was captured. */
  data: Uint8Array;
  /** Bytes on the wire; more than the length of `data` if the capture was truncated. */
  wireLength: number;
  /** From the packet flags of pcapng: 1 = received, 2 = sent, 0 = unknown. */
  direction: 0 | 1 | 2;
  /** LINKTYPE of pcap: the header with which the frame begins. Default: 1, Ethernet. */
  linkType?: number;
}

/** A capture, read. */
export interface Capture {
  /** The format of the file. */
  format: 'pcap' | 'pcapng';
  /** The packets in the order of the file. */
  packets: CapturedPacket[];
  /** Sentences about the parts of the file that could not be read: it may end in the middle of a packet. */
  remarks: string[];
}
