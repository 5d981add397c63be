// Boots the card: lays out its memory and creates the objects that all queue pairs share.
import { Errno } from './codes';
import { initMemory } from './host/arena';
import { Card } from './host/card';
import { Doorbells } from './host/doorbell';
import { Events } from './host/event';
import { initCongestion } from './host/parameter';
import { initPkeys } from './host/pkey';
import { allocate } from './host/pool';
import { initRandom } from './host/random';
import { Ring } from './host/ring';
import { Table } from './host/table';
import { MAX_FRAME, MIN_ACK_TIMEOUT, REORDER_WINDOW } from './limits';
import { SCRATCH } from './memorymap';
import { TIMER_BYTES } from './qp/timer';
import { initIcrc } from './wire/icrc';
import { initOpcodes } from './wire/opcode';

function isPowerOfTwo(value: u32): bool {
  return popcnt<u32>(value) == 1;
}

/** Lays out the memory. The seed is at scratch(). */
export function openCard(
  memoryBytes: u64,
  txSlotBytes: u32,
  txSlots: u32,
  rxSlotBytes: u32,
  rxSlots: u32,
  maxQp: u32,
  maxMr: u32,
): Errno {
  if (min(txSlotBytes, rxSlotBytes) < MAX_FRAME || !isPowerOfTwo(txSlots) || !isPowerOfTwo(rxSlots))
    return Errno.EINVAL;
  if (maxQp == 0 || maxMr == 0 || maxQp > 1 << 20 || maxMr > 1 << 20) return Errno.EINVAL;
  initRandom(SCRATCH);
  initIcrc();
  initOpcodes();
  initMemory(memoryBytes);
  initCongestion();
  initPkeys();
  let card = Card.get();
  card.keys = Table.create(maxMr);
  card.qps = Table.create(maxQp);
  card.events = Events.create();
  card.doorbells = Doorbells.create(maxQp);
  card.txRing = Ring.create(txSlots, txSlotBytes);
  card.rxRing = Ring.create(rxSlots, rxSlotBytes);
  card.minAckTimeout = <u64>MIN_ACK_TIMEOUT;
  card.reorderWindow = REORDER_WINDOW;
  card.timers = allocate(<u64>(maxQp + 1) * TIMER_BYTES);
  let all =
    changetype<usize>(card.keys) != 0 &&
    changetype<usize>(card.qps) != 0 &&
    changetype<usize>(card.events) != 0 &&
    changetype<usize>(card.doorbells) != 0 &&
    changetype<usize>(card.txRing) != 0 &&
    changetype<usize>(card.rxRing) != 0 &&
    card.timers != 0;
  return all ? Errno.OK : Errno.ENOMEM;
}
