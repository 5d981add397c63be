/** Two hosts whose programs find each other: two network namespaces, each with an interface. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Ended, Running } from '../cli/run.js';
import { findValkey } from '../interop/guest/valkey.js';
import { all, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { PeerNamespace } from '../link/netns.js';
import { PROGRAMS, type Program, type Way } from './catalogue.js';
import { type Compiled, compile } from './compiled.js';
import { built, connected, type Host, LIBRARY, launch, listening } from './ends.js';

const COMMANDS = [
  ...['ibv_devinfo', 'rping', 'ib_write_bw', 'qperf', 'ucx_info', 'fi_info', 'fio', 'curl', 'python3'],
  ...['mpicc.openmpi', 'mpicc.mpich', 'gcc', 'nsenter', 'setpriv'],
];

const valkey = findValkey();

/** Whether all is there that the programs of the catalogue need. */
export const present = all(built, netPrivilege(), ...COMMANDS.map(programPrivilege), {
  ok: valkey !== undefined,
  reason: 'Valkey with RDMA is not built: npm run build',
});

/** Returns the way of a program. @throws Error when the catalogue has none of this name */
export function wayOf(program: string, name: string): Way {
  const found = PROGRAMS.find((each: Program) => each.name === program)?.ways.find((way) => way.name === name);
  if (found === undefined) throw new Error(`the catalogue has no way ${name} of ${program}`);
  return found;
}

function expectComplete({ status, stdout, stderr }: Ended, prints?: RegExp): void {
  expect(status, `${stderr}${stdout}`).toBe(0);
  if (prints) expect(stdout).toMatch(prints);
}

/** Both ends of a way that runs. */
export interface Ends {
  readonly server: Running;
  readonly client: Running;
}

export class Hosts {
  readonly near: Host;
  readonly far: Host;
  /** A folder for files of the tests. */
  readonly folder = mkdtempSync(join(tmpdir(), 'wasm-roce-programs-'));
  readonly #namespace: PeerNamespace;
  readonly #net: number;
  readonly #compiled: Compiled;
  #lastPort = 19_000;

  /** @param net of the addresses: those of the near host end with 1, those of the far host with 2 */
  static async open(name: string, net: number): Promise<Hosts> {
    return new Hosts(await PeerNamespace.open(name, net), net);
  }

  private constructor(namespace: PeerNamespace, net: number) {
    this.#namespace = namespace;
    this.#net = net;
    this.#compiled = compile(this.folder);
    this.near = { interface: namespace.near, enter: ['env'] };
    this.far = { interface: namespace.far, enter: ['nsenter', ...namespace.enter] };
  }

  close(): void {
    this.#namespace.close();
    rmSync(this.folder, { recursive: true });
  }

  /** Starts both ends of a way. The client finds its server if that listens soon enough. */
  async start(way: Way & { readonly server: string }): Promise<Ends> {
    const port = ++this.#lastPort;
    const server = launch(this.far, this.#wordsOf(way.server, way, port));
    // nothing outside of the server shows that it listens by rdma_cm
    await (way.cm ? sleep(1000) : listening(server, port));
    return { server, client: launch(this.near, this.#wordsOf(way.client, way, port)) };
  }

  /** Runs a way, and checks how it ends. */
  async run(way: Way): Promise<void> {
    if (way.server !== undefined && !way.refused) return this.#runBoth({ ...way, server: way.server });
    const ended = await launch(this.far, this.#wordsOf(way.client, way, ++this.#lastPort)).ended;
    if (way.refused) {
      expect(ended.status).not.toBe(0);
      expect(ended.stdout + ended.stderr).toMatch(way.refused);
    } else {
      expectComplete(ended, way.prints);
    }
  }

  async #runBoth(way: Way & { readonly server: string }): Promise<void> {
    const [serving, ended] = await (way.cm ? this.#connect(way) : this.#startAndEnd(way));
    expectComplete(ended, way.prints);
    if (way.stays) serving.child.kill();
    else expectComplete(await serving.ended);
  }

  #connect(way: Way & { readonly server: string }): Promise<[Running, Ended]> {
    const port = ++this.#lastPort;
    return connected(
      () => launch(this.far, this.#wordsOf(way.server, way, port)),
      () => launch(this.near, this.#wordsOf(way.client, way, port)),
    );
  }

  async #startAndEnd(way: Way & { readonly server: string }): Promise<[Running, Ended]> {
    const { server, client } = await this.start(way);
    return [server, await client.ended];
  }

  /** Returns the words of an end. */
  #wordsOf(words: string, { family }: Way, port: number): string[] {
    const isIpv6 = family === 'IPv6';
    const addressOf = (n: number) => (isIpv6 ? `fd00:${this.#net}::${n}` : `10.${this.#net}.0.${n}`);
    const values: Readonly<Record<string, string | undefined>> = {
      ...this.#compiled,
      ADDRESS: addressOf(2),
      CLIENT: addressOf(1),
      IPV4: `10.${this.#net}.0.2`,
      PORT: `${port}`,
      GID: isIpv6 ? '2' : '1',
      FILE: LIBRARY,
      COPY: join(this.folder, 'copy'),
      VALKEY: valkey,
    };
    const all = words.trim().split(/ +/);
    return all.map((word) => word.replace(/[A-Z\d]{3,}/g, (name) => values[name] ?? name));
  }
}
