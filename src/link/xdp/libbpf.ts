/** libbpf, which the addon opens when the xdp link is first used: everything else works without it. */
import { VerbsError } from '../../errors.js';
import { type NativeLibbpf, native } from '../../native.js';

/** Returns libbpf. @throws VerbsError EOPNOTSUPP that names the Debian package, or without the addon */
export function libbpf(): NativeLibbpf {
  const loaded = native().libbpf();
  if (typeof loaded !== 'string') return loaded;
  throw new VerbsError(
    'EOPNOTSUPP',
    `the xdp link needs libbpf.so.1, which does not load (${loaded}): on Debian install the package libbpf1`,
  );
}

/** Returns why libbpf cannot be loaded; undefined if it can. */
export function libbpfMissing(): string | undefined {
  try {
    libbpf();
    return undefined;
  } catch (error) {
    return (error as Error).message.replace(/^EOPNOTSUPP: /, '');
  }
}
