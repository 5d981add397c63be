/** The offload of the ICRC by links of the host: whether it is there, and what people read of it. */
import { native } from '../native.js';
import type { Frames } from './frames.js';
import type { LinkFeatures } from './link.js';

/** The addon's ways to compute it on this processor. Read once: links are asked for their features at each connect. */
let crcMethods: readonly string[] | undefined;

function methods(): readonly string[] {
  crcMethods ??= native().crcMethods();
  return crcMethods;
}

/** Returns the offload as a feature, if the addon supports it on this processor. */
export function icrcFeatures(): Pick<LinkFeatures, 'icrcOffload'> {
  return methods().length > 0 ? { icrcOffload: true } : {};
}

/** Returns a line that says how the ICRC is computed, when a card uses the offload. */
export function icrcNotes({ icrcOffload }: Pick<Frames, 'icrcOffload'>): string[] {
  return icrcOffload ? [`ICRC of large packets: mostly computed by the addon (${methods()[0]})`] : [];
}
