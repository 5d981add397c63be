/** The program of one card, started by the demo in a network namespace of its own: `a` does, `b` serves. */
import { once } from 'node:events';
import { errorReport } from '../exit.js';
import type { HostLinkKind } from '../options.js';
import { type Row, runActive } from './active.js';
import { callsTo, serve } from './calls.js';
import { configure, INTERFACE, layCable, startCard } from './namespaces.js';
import type { Operation } from './operation.js';
import type { PartyOptions } from './party.js';
import { createPassive, type Passive } from './passive.js';

/** What the demo wants of card A. */
export interface Task {
  readonly links: readonly HostLinkKind[];
  readonly mode: Mode;
}

/** What card A tells the demo. */
export type Tale =
  | { readonly type: 'begin'; readonly link: string; readonly operation: Operation }
  | { readonly type: 'row'; readonly row: Row }
  /** The namespaces cannot be used after all. */
  | { readonly type: 'unavailable'; readonly reason: string }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'done' };

type Mode = 'inline' | 'worker';

/** What card B can be asked from the start. */
interface Server extends Passive {
  configure(): Promise<void>;
  /** Which link and mode the next `open` is for. */
  use(link: HostLinkKind, mode: Mode): Promise<void>;
}

const SPIN_MS = 0.3;
const partyOptions = (link: HostLinkKind, mode: Mode): PartyOptions => ({
  link,
  mode,
  interface: INTERFACE,
  spinMs: SPIN_MS,
});

process.on('disconnect', () => process.exit());
if (process.argv[2] === 'a') await lead();
else follow();

async function lead(): Promise<void> {
  const [{ links, mode }] = (await once(process, 'message')) as [Task];
  let peer: Server;
  try {
    const child = startCard(['--net'], 'b');
    peer = callsTo<Server>(child, ['configure', 'use', 'open', 'connect', 'begin', 'end', 'close']);
    await once(child, 'message');
    layCable(child.pid as number);
    configure('a');
    await peer.configure();
  } catch (error) {
    tell({ type: 'unavailable', reason: (error as Error).message });
    return;
  }
  try {
    for (const link of links) {
      await peer.use(link, mode);
      const onBegin = (operation: Operation) => tell({ type: 'begin', link, operation });
      await runActive({ ...partyOptions(link, mode), onBegin }, peer, (row) => tell({ type: 'row', row }));
    }
    tell({ type: 'done' });
  } catch (error) {
    tell({ type: 'failed', error: errorReport(error) });
  }
}

function follow(): void {
  let passive: Passive | undefined;
  const current = () => passive as Passive;
  const server: Server = {
    configure: async () => configure('b'),
    use: async (link, mode) => {
      passive = createPassive(partyOptions(link, mode));
    },
    open: () => current().open(),
    connect: (remote) => current().connect(remote),
    begin: (operation) => current().begin(operation),
    end: (operation) => current().end(operation),
    close: () => current().close(),
  };
  serve(server);
  // The first message says that the namespace is there.
  process.send?.({ id: -1 });
}

function tell(tale: Tale): void {
  process.send?.(tale);
}
