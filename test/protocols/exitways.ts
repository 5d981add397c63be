/** The ways in which the program ends without closing anything. */
export const WAYS = {
  'process.exit': { code: 3 },
  'an exception': { code: 1 },
  'the end of the event loop': { code: 0 },
  SIGTERM: { signal: 'SIGTERM' },
  SIGINT: { signal: 'SIGINT' },
  SIGHUP: { signal: 'SIGHUP' },
  SIGQUIT: { signal: 'SIGQUIT' },
  'process.exit in a listener of SIGTERM': { code: 4 },
  'SIGTERM after its listener was removed': { signal: 'SIGTERM' },
  'a thread that ends': { code: 0 },
  'a thread that is terminated': { code: 0 },
} as const;
export type Way = keyof typeof WAYS;

export interface ExitingOptions {
  readonly link: 'udp' | 'packet' | 'xdp';
  readonly mode: 'inline' | 'worker';
  readonly address: string;
  readonly host: string;
  readonly netPort: number;
  readonly messagePort: number;
  readonly count: number;
  readonly way: Way;
}
