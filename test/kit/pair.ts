/** Two queue pairs of bare cards, connected by hand. */
import type { RigQp } from './rig.js';

/** Attributes of a connection between two queue pairs. Every number applies to both ends. */
export interface PairOptions {
  readonly mtu?: number;
  readonly ipv6?: boolean;
  readonly timeout?: number;
  readonly retryCnt?: number;
  readonly rnrRetry?: number;
  readonly minRnrTimer?: number;
  readonly rdAtomic?: number;
  readonly access?: number;
  /** First PSN of the first and of the second queue pair. */
  readonly psns?: readonly [number, number];
}

/** Connects queue pairs of the cards at two ports (from 0) to each other, up to RTS. */
export function connectPair(a: RigQp, portA: number, b: RigQp, portB: number, options: PairOptions = {}): void {
  const ip = (port: number): number[] =>
    options.ipv6 ? [0xfd, ...new Array<number>(14).fill(0), port + 1] : [10, 0, 0, port + 1];
  const mac = (port: number): number[] => [2, 0, 0, 0, 0, port + 1];
  const [psnA, psnB] = options.psns ?? [100, 200];
  const { rdAtomic = 4, ...rest } = options;
  const both = { ...rest, maxRdAtomic: rdAtomic, maxDestRdAtomic: rdAtomic };
  const ends = (here: number, there: number) => ({
    localIp: ip(here),
    remoteIp: ip(there),
    localMac: mac(here),
    remoteMac: mac(there),
  });
  a.connect({ ...both, ...ends(portA, portB), destQpn: b.qpn, sqPsn: psnA, rqPsn: psnB });
  b.connect({ ...both, ...ends(portB, portA), destQpn: a.qpn, sqPsn: psnB, rqPsn: psnA });
}
