/** Memory of the program that is registered for the time of one call, which then copies nothing. */
import type { AccessFlags } from '../verbs/access.js';
import type { Domain } from '../verbs/objects/domain.js';
import { Mr } from '../verbs/objects/mr.js';
import type { Sge } from '../verbs/work/wr.js';
import type { SlotInPlace } from './sendqueue.js';

/** Copying shorter memory takes less time than its registration (bytes). */
const LONG_BYTES = 32_768;

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

/**
 * Long memory of the program that the requests of a call use in place. The call may end before its requests, when its
 * wait does: the card goes on with a copy then.
 */
export class CallMemory {
  readonly #mr: Mr;
  #requests = 0;
  #isOver = false;

  private constructor(mr: Mr) {
    this.#mr = mr;
  }

  /** @returns undefined as `registerForCall`, and for the card's own memory, which cannot be exchanged for a copy */
  static over(pd: Domain, memory: Uint8Array, access: AccessFlags): CallMemory | undefined {
    if (pd.device.memory.contains(memory)) return undefined;
    const mr = registerForCall(pd, memory, access);
    return mr && new CallMemory(mr);
  }

  /** Returns a part of the memory for one request. */
  part(offset: number, length: number): SlotInPlace {
    return {
      bytes: this.#mr.buffer.subarray(offset, offset + length),
      sge: (bytes): Sge => this.#mr.sge(offset, bytes),
      take: () => {
        this.#requests++;
      },
      release: () => {
        this.#requests--;
        this.#closeIfUnused();
      },
    };
  }

  /** The call is over, and begins no more requests. The program may use its memory. */
  end(): void {
    this.#isOver = true;
    if (this.#requests > 0) this.#mr.copyAway();
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    // it fails only with its device
    if (this.#isOver && this.#requests === 0) void this.#mr.close().catch(() => {});
  }
}
