/** The differences of the peers, by their kernel, rdma-core and perftest. All else is the same for each of them. */
import { WcStatus } from '../../../src/index.js';
import { guestSuite } from './recipe.js';

interface Differences {
  /** Status of a request that rxe posts when the guest's interface is down. */
  readonly interfaceDown: number;
  /** Versions of perftest: the folder of the programs, and the version of their handshake. */
  readonly perftest: readonly { readonly version: string; readonly folder: string; readonly says: string }[];
  /** The families in which `--tclass` of perftest in /usr/bin has an effect. */
  readonly tclass: readonly ('IPv4' | 'IPv6')[];
  /** perftest in /usr/bin tells its peer when SIGINT ends `--run_infinitely`; otherwise it just dies. */
  readonly saysGoodbye: boolean;
  /**
   * Synchronization of the two ends of cmtime: none; by a TCP connection, at the steps of cmtime.ts; or through a
   * controller for any number of peers, which the tests do not imitate.
   */
  readonly cmtime: 'free' | 'steps' | 'controller';
  /** libibverbs has ATOMIC WRITE and FLUSH. */
  readonly hasFlush: boolean;
  /** Bit of wc_flags for an invalidated key. rxe sets the kernel's, and not IBV_WC_WITH_INV. */
  readonly withInv: number;
}

/** Whether the library for C programs takes the place of rxe (scripts/test.mjs). */
export const USES_LIBRARY = process.env.WASM_ROCE_PEER === 'library';

const RXE_WITH_INV = 4;

const OLD_PERFTEST = { version: '4.5', says: '6.06' };
const NEW_PERFTEST = { version: '25.01', folder: '/usr/bin', says: '6.24' };

const DIFFERENCES: Readonly<Record<string, Differences>> = {
  // Linux 6.1, rdma-core 44
  bookworm: {
    interfaceDown: WcStatus.LOC_QP_OP_ERR,
    perftest: [{ ...OLD_PERFTEST, folder: '/usr/bin' }],
    tclass: ['IPv4'],
    saysGoodbye: false,
    cmtime: 'free',
    hasFlush: false,
    withInv: RXE_WITH_INV,
  },
  // Linux 6.12, rdma-core 56
  trixie: {
    interfaceDown: WcStatus.WR_FLUSH_ERR,
    perftest: [NEW_PERFTEST, { ...OLD_PERFTEST, folder: '/opt/bookworm' }],
    tclass: ['IPv4', 'IPv6'],
    saysGoodbye: true,
    cmtime: 'steps',
    hasFlush: true,
    withInv: RXE_WITH_INV,
  },
  // Linux 7.2, rdma-core 65
  sid: {
    interfaceDown: WcStatus.WR_FLUSH_ERR,
    perftest: [NEW_PERFTEST],
    tclass: ['IPv4', 'IPv6'],
    saysGoodbye: true,
    cmtime: 'controller',
    hasFlush: true,
    withInv: RXE_WITH_INV,
  },
  // the library for C programs, with the headers of rdma-core 44
  library: {
    interfaceDown: WcStatus.RETRY_EXC_ERR,
    perftest: [{ ...OLD_PERFTEST, folder: '/usr/bin' }],
    tclass: ['IPv4'],
    saysGoodbye: false,
    cmtime: 'free',
    hasFlush: false,
    withInv: 8,
  },
};

/** The column of the guest of these tests. */
export const GUEST_IS = DIFFERENCES[USES_LIBRARY ? 'library' : guestSuite()] as Differences;
