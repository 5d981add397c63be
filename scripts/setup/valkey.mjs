// The step that builds Valkey with RDMA, a peer of the interop tests.
import { outsideStep } from './outside.mjs';

const BUILDER = 'test/interop/guest/valkey.ts';

export const valkey = {
  name: 'Valkey with RDMA',
  ...outsideStep({
    id: 'valkey',
    builder: BUILDER,
    inputs: [BUILDER],
    commands: ['apt-get', 'make', 'gcc'],
    skipped: 'tests against Valkey are skipped',
    doing: "building it from Debian's source package",
  }),
};
