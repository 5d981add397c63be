// Opcodes of send work requests: the queue pair types that support each, and their properties.
import { QpType, WcOpcode, WrOpcode } from '../codes';

/** Bits of the opcodes that a queue pair type supports. */
const UC_OPERATIONS: u32 =
  (1 << WrOpcode.SEND) |
  (1 << WrOpcode.SEND_WITH_IMM) |
  (1 << WrOpcode.RDMA_WRITE) |
  (1 << WrOpcode.RDMA_WRITE_WITH_IMM) |
  (1 << WrOpcode.LOCAL_INV) |
  (1 << WrOpcode.REG_MR) |
  (1 << WrOpcode.BIND_MW);
const UD_OPERATIONS: u32 = (1 << WrOpcode.SEND) | (1 << WrOpcode.SEND_WITH_IMM);
const RC_OPERATIONS: u32 =
  UC_OPERATIONS |
  (1 << WrOpcode.SEND_WITH_INV) |
  (1 << WrOpcode.RDMA_READ) |
  (1 << WrOpcode.ATOMIC_CMP_AND_SWP) |
  (1 << WrOpcode.ATOMIC_FETCH_AND_ADD) |
  (1 << WrOpcode.FLUSH) |
  (1 << WrOpcode.ATOMIC_WRITE);

export function operationsOf(type: u32): u32 {
  return type == QpType.RC ? RC_OPERATIONS : type == QpType.UC ? UC_OPERATIONS : UD_OPERATIONS;
}

/** A request with a response of its own: READ, atomic, ATOMIC WRITE, FLUSH. The number outstanding is limited. */
export function isRdAtomic(opcode: u32): bool {
  return opcode == WrOpcode.RDMA_READ || isAtomicWr(opcode) || hasEmptyResponse(opcode);
}

/** The response is a READ response without data. */
export function hasEmptyResponse(opcode: u32): bool {
  return opcode == WrOpcode.FLUSH || opcode == WrOpcode.ATOMIC_WRITE;
}

export function isAtomicWr(opcode: u32): bool {
  return opcode == WrOpcode.ATOMIC_CMP_AND_SWP || opcode == WrOpcode.ATOMIC_FETCH_AND_ADD;
}

/** The card executes it without a packet. */
export function isLocalOp(opcode: u32): bool {
  return opcode == WrOpcode.LOCAL_INV || opcode == WrOpcode.REG_MR || opcode == WrOpcode.BIND_MW;
}

/** The message uses a receive WQE of the peer. */
export function needsReceive(opcode: u32): bool {
  return (
    opcode == WrOpcode.SEND ||
    opcode == WrOpcode.SEND_WITH_IMM ||
    opcode == WrOpcode.SEND_WITH_INV ||
    opcode == WrOpcode.RDMA_WRITE_WITH_IMM
  );
}

/** Returns the opcode of the completion of a send work request. */
export function wcOpcode(opcode: u32): WcOpcode {
  switch (opcode) {
    case WrOpcode.RDMA_WRITE:
    case WrOpcode.RDMA_WRITE_WITH_IMM:
      return WcOpcode.RDMA_WRITE;
    case WrOpcode.RDMA_READ:
      return WcOpcode.RDMA_READ;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return WcOpcode.COMP_SWAP;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return WcOpcode.FETCH_ADD;
    case WrOpcode.LOCAL_INV:
      return WcOpcode.LOCAL_INV;
    case WrOpcode.BIND_MW:
      return WcOpcode.BIND_MW;
    case WrOpcode.REG_MR:
      return WcOpcode.REG_MR;
    case WrOpcode.FLUSH:
      return WcOpcode.FLUSH;
    case WrOpcode.ATOMIC_WRITE:
      return WcOpcode.ATOMIC_WRITE;
  }
  return WcOpcode.SEND;
}
