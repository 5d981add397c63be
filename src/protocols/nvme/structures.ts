/**
 * Offsets in the data structures of Identify, with the names that the specifications give their fields (NVM Express
 * base specification and NVM command set specification, "Identify command"; Fabrics fields included).
 */

/** Identify Controller. */
export const CONTROLLER = {
  /** Serial number, 20 bytes of text. */
  SN: 4,
  /** Model number, 40 bytes of text. */
  MN: 24,
  /** Firmware revision, 8 bytes of text. */
  FR: 64,
  /** Several ports, several controllers. */
  CMIC: 76,
  /** Most bytes of data of a command: 2^MDTS pages; 0 = any. */
  MDTS: 77,
  CNTLID: 78,
  /** Version of the specification. */
  VER: 80,
  /** Asynchronous events that are reported. */
  OAES: 92,
  CTRATT: 96,
  CNTRLTYPE: 111,
  /** Aborts that may be outstanding, less 1. */
  ACL: 258,
  /** Asynchronous event requests that may be outstanding, less 1. */
  AERL: 259,
  /** Attributes of log pages. */
  LPA: 261,
  /** Unit of the keep-alive timer, in 100 ms. */
  KAS: 320,
  /** Sizes of entries of submission and completion queues. */
  SQES: 512,
  CQES: 513,
  /** Commands that may be outstanding in a queue. */
  MAXCMD: 514,
  /** Highest id of a namespace. */
  NN: 516,
  /** Optional commands. */
  ONCS: 520,
  /** Volatile write cache. */
  VWC: 525,
  /** Kinds of SGLs. */
  SGLS: 536,
  /** NQN of the subsystem, text. */
  SUBNQN: 768,
  /** Bytes of a command with its data, and of a response, in units of 16. */
  IOCCSZ: 1792,
  IORCSZ: 1796,
  /** Offset of the data in a command, behind its 64 bytes. */
  ICDOFF: 1800,
  /** SGL descriptors of a command. */
  MSDBD: 1803,
} as const;

/** Bits of ONCS. */
export const ONCS = { COMPARE: 1 << 0, DATASET_MANAGEMENT: 1 << 2, WRITE_ZEROES: 1 << 3 } as const;

/** Bits of SGLS. */
export const SGLS = { SUPPORTED: 1 << 0, KEYED: 1 << 2, OFFSETS: 1 << 20 } as const;

/** Identify Namespace. */
export const NAMESPACE = {
  /** Size, capacity and use in blocks, 64 bits each. */
  NSZE: 0,
  NCAP: 8,
  NUSE: 16,
  /** The format in use. */
  FLBAS: 26,
  /** Several controllers may have it. */
  NMIC: 30,
  /** Bit 0: write protected. */
  NSATTR: 99,
  /** 16 bytes. */
  NGUID: 104,
  /** The formats, 4 bytes each. */
  LBAF: 128,
} as const;

/** A format in Identify Namespace. */
export const FORMAT = {
  BYTES: 4,
  /** Bytes of metadata of a block, 16 bits. */
  MS: 0,
  /** Bytes of a block: 2^LBADS. */
  LBADS: 2,
} as const;

/** Identify Controller of the NVM command set. */
export const COMMAND_SET = {
  /** Most bytes of a Write Zeroes: 2^WZSL pages; 0 = as MDTS. */
  WZSL: 1,
  /** Dataset Management: most ranges, blocks of a range, and blocks of all; 0 = any. */
  DMRL: 3,
  DMRSL: 4,
  DMSL: 8,
} as const;
