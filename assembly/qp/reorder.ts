// The reorder buffer of the responder: SENDs and WRITEs ahead of a gap in the PSNs wait here until the gap is
// filled, instead of being dropped, sent again and dropped again. A path whose delay varies by more than the distance
// of two packets puts most packets of a window out of order, and go-back-N alone then moves a packet or two in a round
// trip. For the peer it is as if the path had delayed the packet: the NAK of the gap is sent as ever, and requests are
// checked and executed in the order of their PSNs only.
//
// The card has one buffer for all queue pairs. It takes its memory at the first gap, and gives it back when a queue
// pair is destroyed and nothing waits. A queue pair may use no more slots than it leaves free, so that none has them
// all. No packet waits that is further ahead than the reorder window: stale and forged packets can hit no more than it.
import { NO_DROP } from '../counters';
import { Card } from '../host/card';
import { allocate, release } from '../host/pool';
import { BUFFERED_PACKET } from '../memorymap';
import { Packet } from '../wire/packet';
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';

const SLOTS: u32 = 256;
/** The largest request: BTH 12, RETH 16, ImmDt 4, payload 4096, ICRC 4; and the fields of its slot. */
const SLOT_BYTES: u32 = 65 * 64;

@unmanaged
@final
export class ReorderSlot {
  next: usize;
  psn: u32;
  opcode: u32;
  bytes: u32;

  static at(ptr: usize): ReorderSlot {
    return changetype<ReorderSlot>(ptr);
  }
  get ptr(): usize {
    return changetype<usize>(this);
  }
  /** The bytes of the packet, from the BTH to the ICRC. */
  get content(): usize {
    return this.ptr + offsetof<ReorderSlot>();
  }
  /** The packet, until the next one is opened; null when others have written to its frame while it was copied. */
  get packet(): Packet {
    let packet = changetype<Packet>(BUFFERED_PACKET);
    let isSame =
      packet.reopen(this.content, this.bytes) == NO_DROP && packet.psn == this.psn && packet.opcode == this.opcode;
    return isSame ? packet : changetype<Packet>(0);
  }
}

/** Buffers a packet that is `ahead` PSNs ahead. Returns whether it waits now, or did already. */
export function bufferPacket(qp: Qp, packet: Packet, ahead: i32): bool {
  let bytes = packet.transportBytes;
  if (<u32>ahead > Card.get().reorderWindow || bytes > SLOT_BYTES - <u32>offsetof<ReorderSlot>()) return false;
  let before: usize = 0;
  let next = qp.reorderFirst;
  while (next != 0 && psnDiff(ReorderSlot.at(next).psn, packet.psn) < 0) {
    before = next;
    next = ReorderSlot.at(next).next;
  }
  if (next != 0 && ReorderSlot.at(next).psn == packet.psn) return true;
  let slot = takeSlot(qp);
  if (slot.ptr == 0) return false;
  slot.psn = packet.psn;
  slot.opcode = packet.opcode;
  slot.bytes = bytes;
  memory.copy(slot.content, packet.bthPtr, bytes);
  slot.next = next;
  if (before != 0) ReorderSlot.at(before).next = slot.ptr;
  else qp.reorderFirst = slot.ptr;
  qp.reorderCount++;
  return true;
}

function takeSlot(qp: Qp): ReorderSlot {
  let card = Card.get();
  if (card.reorderSlots == 0) createBuffer(card);
  let slot = ReorderSlot.at(card.reorderFree);
  if (qp.reorderCount >= card.reorderFreeCount) return ReorderSlot.at(0);
  card.reorderFree = slot.next;
  card.reorderFreeCount--;
  return slot;
}

function createBuffer(card: Card): void {
  let base = allocate(SLOTS * SLOT_BYTES);
  if (base == 0) return;
  card.reorderSlots = base;
  for (let n: u32 = 0; n < SLOTS; n++) freeSlot(ReorderSlot.at(base + <usize>n * SLOT_BYTES));
}

/** Returns a slot that was taken. */
export function freeSlot(slot: ReorderSlot): void {
  let card = Card.get();
  slot.next = card.reorderFree;
  card.reorderFree = slot.ptr;
  card.reorderFreeCount++;
}

/** Takes the oldest packet if none before it is missing; null when there is none such. Its PSN may be an older one. */
export function takeBuffered(qp: Qp): ReorderSlot {
  let slot = ReorderSlot.at(qp.reorderFirst);
  if (slot.ptr == 0 || psnDiff(slot.psn, qp.ePsn) > 0) return ReorderSlot.at(0);
  qp.reorderFirst = slot.next;
  qp.reorderCount--;
  return slot;
}

/** Drops everything that waits: the queue pair has stopped. */
export function freeBuffered(qp: Qp): void {
  while (qp.reorderFirst != 0) {
    let slot = ReorderSlot.at(qp.reorderFirst);
    qp.reorderFirst = slot.next;
    freeSlot(slot);
  }
  qp.reorderCount = 0;
}

/** Gives the memory back while nothing waits. */
export function releaseReorderBuffer(): void {
  let card = Card.get();
  if (card.reorderSlots == 0 || card.reorderFreeCount != SLOTS) return;
  release(card.reorderSlots);
  card.reorderSlots = 0;
  card.reorderFree = 0;
  card.reorderFreeCount = 0;
}
