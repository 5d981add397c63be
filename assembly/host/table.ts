// Hash table of objects by their 24-bit number (a queue pair number, the index of a key): open addressing with linear
// probing, at most half full. Rows are | number u32 | pointer u32 |, pointer 0 = empty.
import { allocate } from './pool';

@unmanaged
@final
export class Table {
  mask: u32;
  used: u32;
  limit: u32;

  /** Creates a table for `limit` objects; null when memory is short. */
  static create(limit: u32): Table {
    let rows: u32 = 16;
    while (rows < limit * 2) rows <<= 1;
    let table = changetype<Table>(allocate(<u64>rows * 8 + 64));
    if (changetype<usize>(table) == 0) return table;
    table.mask = rows - 1;
    table.used = 0;
    table.limit = limit;
    return table;
  }

  private row(slot: u32): usize {
    return changetype<usize>(this) + 64 + ((<usize>slot) << 3);
  }
  /** Numbers are random, but a peer may choose which ones it sends: the hash spreads them. */
  private hash(number: u32): u32 {
    return ((number * 0x9e3779b1) >>> 8) & this.mask;
  }

  get rows(): u32 {
    return this.mask + 1;
  }
  /** Returns the pointer of a row; 0 = empty. Rows are in no order. */
  at(slot: u32): usize {
    return load<u32>(this.row(slot), 4);
  }

  get isFull(): bool {
    return this.used >= this.limit;
  }

  lookup(number: u32): usize {
    let slot = this.hash(number);
    while (load<u32>(this.row(slot), 4) != 0 && load<u32>(this.row(slot)) != number) slot = (slot + 1) & this.mask;
    return load<u32>(this.row(slot), 4);
  }

  /** The number must not be in the table, and the table must not be full. */
  add(number: u32, ptr: usize): void {
    let slot = this.hash(number);
    while (load<u32>(this.row(slot), 4) != 0) slot = (slot + 1) & this.mask;
    store<u32>(this.row(slot), number);
    store<u32>(this.row(slot), ptr, 4);
    this.used++;
  }

  /** Moves up the rows behind the hole, so that no probe ends early. */
  remove(number: u32): void {
    let hole = this.hash(number);
    while (load<u32>(this.row(hole)) != number || load<u32>(this.row(hole), 4) == 0) hole = (hole + 1) & this.mask;
    this.used--;
    for (let slot = hole; ; ) {
      slot = (slot + 1) & this.mask;
      let row = this.row(slot);
      if (load<u32>(row, 4) == 0) break;
      let wish = this.hash(load<u32>(row));
      if (((slot - wish) & this.mask) < ((slot - hole) & this.mask)) continue;
      store<u64>(this.row(hole), load<u64>(row));
      hole = slot;
    }
    store<u64>(this.row(hole), 0);
  }
}
