// The steps that build the virtual machine images of the interop tests.
import { outsideStep } from './outside.mjs';

/** The guests of the projects `interop` and `peers` in vitest.config.ts. */
const SUITES = ['trixie', 'bookworm'];

/** Returns a step. @param suite of Debian, as in WASM_ROCE_GUEST */
function guest(suite) {
  const skipped = `interop tests against rxe of Debian ${suite} are skipped`;
  const isRoot = process.getuid?.() === 0;
  return {
    name: `guest image of Debian ${suite}`,
    ...outsideStep({
      id: `guest-${suite}`,
      builder: 'test/interop/guest/image.ts',
      inputs: ['test/interop/guest'],
      env: { WASM_ROCE_GUEST: suite },
      commands: ['mmdebstrap', 'qemu-system-x86_64'],
      skipped,
      doing: 'building a small Debian with rxe',
      blocked: () => (isRoot ? undefined : `not root, so it cannot be built: ${skipped} unless the image exists`),
    }),
  };
}

export const guests = [...new Set([...SUITES, process.env.WASM_ROCE_GUEST || 'trixie'])].map(guest);
