/** Memory of the program that is registered for the time of one call, which then copies nothing. */
import type { AccessFlags } from '../verbs/access.js';
import type { Domain } from '../verbs/objects/domain.js';
import { Mr } from '../verbs/objects/mr.js';

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
    return new Mr(pd, pd.handle, pd.device.memory, memory, { access });
  } catch {
    // if the domain is closed, the call fails by itself
    return undefined;
  }
}
