/** The program of one card, which the demo starts in its own network namespace: `a` is active, `b` is passive. */
import { once } from 'node:events';
import { errorReport } from '../exit.js';
import type { HostLinkKind } from '../options.js';
import { type Row, runActive } from './active.js';
import { callsTo, serve } from './ipc.js';
import { configure, createVethPair, INTERFACE, startCard } from './namespaces.js';
import type { Operation } from './operation.js';
import { createPassive, type Passive } from './passive.js';
import type { PeerOptions } from './peer.js';

/** The order of the demo to card A. */
export interface CardTask {
  readonly links: readonly HostLinkKind[];
  readonly mode: Mode;
}

/** A report of card A to the demo. */
export type CardMessage =
  | { readonly type: 'begin'; readonly link: string; readonly operation: Operation }
  | { readonly type: 'row'; readonly row: Row }
  /** The namespaces cannot be used. */
  | { readonly type: 'unavailable'; readonly reason: string }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'done' };

type Mode = 'inline' | 'worker';

/** The calls that card B serves from the start. */
interface Server extends Passive {
  configure(): Promise<void>;
  /** Sets link and mode for the next `open`. */
  use(link: HostLinkKind, mode: Mode): Promise<void>;
}

const SPIN_MS = 0.3;
const peerOptions = (link: HostLinkKind, mode: Mode): PeerOptions => ({
  link,
  mode,
  interface: INTERFACE,
  spinMs: SPIN_MS,
});

process.on('disconnect', () => process.exit());
if (process.argv[2] === 'a') await runCardA();
else runCardB();

async function runCardA(): Promise<void> {
  const [{ links, mode }] = (await once(process, 'message')) as [CardTask];
  let cardB: Server;
  try {
    const child = startCard(['--net'], 'b');
    cardB = callsTo<Server>(child, ['configure', 'use', 'open', 'connect', 'begin', 'end', 'close']);
    await once(child, 'message');
    createVethPair(child.pid as number);
    configure('a');
    await cardB.configure();
  } catch (error) {
    sendMessage({ type: 'unavailable', reason: (error as Error).message });
    return;
  }
  try {
    for (const link of links) {
      await cardB.use(link, mode);
      const onBegin = (operation: Operation) => sendMessage({ type: 'begin', link, operation });
      await runActive({ ...peerOptions(link, mode), onBegin }, cardB, (row) => sendMessage({ type: 'row', row }));
    }
    sendMessage({ type: 'done' });
  } catch (error) {
    sendMessage({ type: 'failed', error: errorReport(error) });
  }
}

function runCardB(): void {
  let passive: Passive | undefined;
  const current = () => passive as Passive;
  const server: Server = {
    configure: async () => configure('b'),
    use: async (link, mode) => {
      passive = createPassive(peerOptions(link, mode));
    },
    open: () => current().open(),
    connect: (remote) => current().connect(remote),
    begin: (operation) => current().begin(operation),
    end: (operation) => current().end(operation),
    close: () => current().close(),
  };
  serve(server);
  // The first message reports that the namespace is ready.
  process.send?.({ id: -1 });
}

function sendMessage(message: CardMessage): void {
  process.send?.(message);
}
