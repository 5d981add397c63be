/** Memory of the program that is registered for the time of one call, which then copies nothing. */
import type { MemoryPart } from '../device/memory.js';
import type { AccessFlags } from '../verbs/access.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import type { Domain } from '../verbs/objects/domain.js';
import { Mr } from '../verbs/objects/mr.js';
import type { Sge } from '../verbs/work/wr.js';
import type { SlotInPlace } from './sendqueue.js';

/**
 * Copying shorter memory takes less time than its registration (bytes): V8 copies 64 KiB in 4 us, and a registration
 * takes 25 us and more, because the object that keeps the memory counts as garbage of its size.
 */
const LONG_BYTES = 262_144;

/**
 * Registers memory of the program, if it is long. The caller closes the region at the end of its call, and the program
 * leaves the memory as it is until then.
 * @returns undefined if the caller has to copy the bytes: they are few, or cannot be registered, as those of a
 * resizable ArrayBuffer
 */
export function registerForCall(pd: Domain, memory: Uint8Array, access: AccessFlags): Mr | undefined {
  if (memory.length < LONG_BYTES) return undefined;
  try {
    return new Mr(pd, pd.handle, pd.device.memory, memory, { access }).makeInternal();
  } catch {
    // if the domain is closed, the call fails by itself
    return undefined;
  }
}

/** Share of the regions of a device that the calls in progress have at most. */
const REGION_SHARE = 1 / 16;

/** Regions of the calls in progress. */
const regions = new WeakMap<DeviceBase, number>();

/**
 * Long memory of the program that the requests of a call use in place. The call may end before its requests, when its
 * wait does: the card goes on with a copy then.
 */
export class CallMemory {
  readonly #mr: Mr;
  /** The parts of requests in flight. */
  readonly #parts = new Set<MemoryPart>();
  #isOver = false;
  #isClosed = false;

  private constructor(mr: Mr) {
    this.#mr = mr;
    count(mr, 1);
  }

  /**
   * @returns undefined as `registerForCall`, for the card's own memory, which cannot be exchanged for a copy, and while
   * many calls are in progress
   */
  static over(pd: Domain, memory: Uint8Array, access: AccessFlags): CallMemory | undefined {
    const { device } = pd;
    if (device.memory.contains(memory)) return undefined;
    if ((regions.get(device) ?? 0) >= device.card.options.maxMr * REGION_SHARE) return undefined;
    const mr = registerForCall(pd, memory, access);
    return mr && new CallMemory(mr);
  }

  /** Returns a part of the memory for one request. */
  part(offset: number, bytes: number): SlotInPlace {
    const part = { offset, bytes };
    return {
      bytes: this.#mr.buffer.subarray(offset, offset + bytes),
      sge: (length): Sge => this.#mr.sge(offset, length),
      take: () => {
        this.#parts.add(part);
      },
      release: () => {
        this.#parts.delete(part);
        if (this.#isOver && this.#parts.size === 0) this.#close();
      },
    };
  }

  /** The call is over, and begins no more requests. The program may use its memory. */
  end(): void {
    this.#isOver = true;
    if (this.#parts.size === 0) {
      this.#close();
      return;
    }
    try {
      this.#mr.copyAway(this.#parts);
    } catch {
      // without memory for the copy, the requests in flight fail
      this.#close();
    }
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    count(this.#mr, -1);
    // it fails only with its device, and a connection that is freed has closed it
    void this.#mr.close().catch(() => {});
  }
}

function count({ pd: { device } }: Mr, change: number): void {
  regions.set(device, (regions.get(device) ?? 0) + change);
}
