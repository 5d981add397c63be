/** The cost of a program before it moves any data: the time to its first device, the memory of idle connections. */
import { performance } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

export interface StartTimes {
  readonly importMs: number;
  readonly deviceMs: number;
}

/** Bytes of one end of an idle connection. */
export interface IdleConnection {
  /** Memory of the card. */
  readonly card: number;
  /** JavaScript heap, and memory of the process outside of the card. */
  readonly heap: number;
  /** Growth of the resident memory of the process, which has the used pages of the card in it. */
  readonly resident: number;
}

const PORT = 7471;
/** Connections that begin at once, and those before the measurement. */
const BATCH = 50;
const WARM = 200;

export class FootprintEnds {
  /** Loads the package, which nothing has loaded before, and opens a device on an interface. */
  async start(name: string): Promise<StartTimes> {
    const begin = performance.now();
    const { openDevice } = await import('wasm-roce');
    const imported = performance.now();
    await openDevice({ link: 'packet', interface: name });
    return { importMs: imported - begin, deviceMs: performance.now() - imported };
  }

  /** Makes `count` connections with the options of `connect` and `listen` left out; both ends are in this process. */
  async idle(count: number): Promise<IdleConnection> {
    const { createMemoryHub, openDevice } = await import('wasm-roce');
    const hub = createMemoryHub();
    const options = { hub, link: 'memory', memoryBytes: 2 ** 30 } as const;
    const client = await openDevice({ ...options, addresses: ['192.0.2.1'] });
    const host = '192.0.2.2';
    const peer = await openDevice({ ...options, addresses: [host] });
    const server = await peer.listen({ port: PORT });
    const held: unknown[] = [];
    void (async () => {
      for await (const request of server) held.push(await request.accept());
    })();
    const connect = async (many: number) => {
      for (let made = 0; made < many; made += BATCH) {
        const batch = Array.from({ length: Math.min(BATCH, many - made) }, () => client.connect({ host, port: PORT }));
        held.push(...(await Promise.all(batch)));
      }
    };
    const now = async (): Promise<IdleConnection> => {
      await collectGarbage();
      const { heapUsed, external, rss } = process.memoryUsage();
      const free = client.query().memoryAvailable + peer.query().memoryAvailable;
      return { card: -free, heap: heapUsed + external, resident: rss };
    };
    await connect(WARM);
    const before = await now();
    await connect(count);
    const after = await now();
    if (held.length !== 2 * (WARM + count))
      throw new Error(`${held.length} ends of ${2 * (WARM + count)} are connected`);
    const of = (what: keyof IdleConnection) => (after[what] - before[what]) / (2 * count);
    return { card: of('card'), heap: of('heap'), resident: of('resident') };
  }
}

async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    collect();
  }
}
