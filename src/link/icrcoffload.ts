/** The offload of the ICRC by links of the host: whether it is there, and what people read of it. */
import { native } from '../native.js';
import type { Frames } from './frames.js';
import type { LinkFeatures } from './link.js';

/** Returns the offload as a feature, if the addon supports it on this processor. */
export function icrcFeatures(): Pick<LinkFeatures, 'icrcOffload'> {
  return native().crcMethods().length > 0 ? { icrcOffload: true } : {};
}

/** Returns a line that says how the ICRC is computed, when a card uses the offload. */
export function icrcNotes({ icrcOffload }: Pick<Frames, 'icrcOffload'>): string[] {
  return icrcOffload ? [`ICRC of large packets: mostly computed by the addon (${native().crcMethods()[0]})`] : [];
}
