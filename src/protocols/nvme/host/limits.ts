/**
 * The limits of a target: bytes of one command, and optional commands. They are read from the structures of Identify
 * (NVM Express base specification and NVM command set specification, "Identify Controller data structure").
 */
import { MAX_BUFFER_BYTES } from '../buffers.js';
import { COMMAND_SET, CONTROLLER, ONCS } from '../structures.js';

/** Blocks that the fields of commands have room for. */
const MAX_BLOCKS = 2 ** 16;
const MAX_RANGE_BLOCKS = 2 ** 32 - 1;
/** Ranges that fit into one Dataset Management. */
const MAX_RANGES = 256;

export interface TargetLimits {
  /** Bytes that one Read or Write moves at most. */
  readonly transferBytes: number;
  /** Blocks of one Write Zeroes at most; 0: the target does not have it. */
  readonly zeroesBlocks: (blockBytes: number) => number;
  /** Limits of Dataset Management; undefined: the target does not have it. */
  readonly discard: { readonly ranges: number; readonly rangeBlocks: number; readonly blocks: number } | undefined;
}

/** @param capabilities the property CAPABILITIES */
function pageBytes(capabilities: bigint): number {
  return 4096 * 2 ** Number((capabilities >> 48n) & 0xfn);
}

/** A power of two in units of pages; 0: no limit. */
const unitsOf = (exponent: number, page: number) => (exponent === 0 ? Number.POSITIVE_INFINITY : page * 2 ** exponent);

/**
 * @param controller Identify Controller
 * @param commandSet the structure of the NVM command set; undefined for a target that has none, and no such limits
 */
export function targetLimits(capabilities: bigint, controller: Buffer, commandSet: Buffer | undefined): TargetLimits {
  const page = pageBytes(capabilities);
  const optional = controller.readUInt16LE(CONTROLLER.ONCS);
  const [zeroesSize = 0, ranges = 0] = [commandSet?.[COMMAND_SET.WZSL], commandSet?.[COMMAND_SET.DMRL]];
  const rangeBlocks = commandSet?.readUInt32LE(COMMAND_SET.DMRSL) || MAX_RANGE_BLOCKS;
  const blocks = Number(commandSet?.readBigUInt64LE(COMMAND_SET.DMSL) || BigInt(MAX_RANGES) * BigInt(MAX_RANGE_BLOCKS));
  // the size of a Write Zeroes has a limit of its own, or that of other commands
  const transferSize = controller[CONTROLLER.MDTS] as number;
  const zeroesBytes = unitsOf(zeroesSize || transferSize, page);
  const hasZeroes = (optional & ONCS.WRITE_ZEROES) !== 0;
  return {
    transferBytes: Math.min(MAX_BUFFER_BYTES, unitsOf(transferSize, page)),
    zeroesBlocks: (blockBytes) => (hasZeroes ? Math.min(MAX_BLOCKS, Math.floor(zeroesBytes / blockBytes)) : 0),
    discard:
      (optional & ONCS.DATASET_MANAGEMENT) === 0
        ? undefined
        : { ranges: Math.min(ranges || MAX_RANGES, MAX_RANGES), rangeBlocks, blocks },
  };
}
