/**
 * RNR timer of our queue pairs, as of those of rdma-core's and perftest's programs: the code of 0.64 ms (IBTA
 * 9.7.5.2.8). The connection manager's default, code 0, is 655 ms.
 */
export const RNR_TIMER = 12;
