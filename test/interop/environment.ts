/** The environment of most interop tests: a network with a guest, or the reason why there is none. */
import { format } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, test } from 'vitest';
import { describeIf, xdpPrivilege } from '../kit/privileges.js';
import { commandsEnded } from './captured-output.js';
import { type LinkKind, OurDevice } from './card.js';
import { USES_LIBRARY } from './guest/differences.js';
import { Guest, guestUnavailable } from './guest/guest.js';
import { LibraryHost, libraryUnavailable } from './guest/libraryhost.js';
import { addressesOf, CARD, GUEST, InteropNetwork, networkUnavailable } from './guest/network.js';
import type { Family } from './pair.js';

export interface Environment {
  /** Available inside tests and hooks only. */
  readonly guest: Guest;
}

export const LINKS: readonly LinkKind[] = ['packet', 'udp'];
export const FAMILY_NAMES: readonly Family[] = ['IPv4', 'IPv6'];

/** `npm test` sets it, and runs the corners of each matrix. `npm run test:peers` runs all rows. */
const ONLY_CORNERS = process.env.WASM_ROCE_PEERS === 'corners';

/** Returns all rows, or the corners in `npm test`: few rows that have each value of each column. */
export function corners<Row>(rows: readonly Row[], isCorner: (row: Row, index: number) => boolean): Row[] {
  return rows.filter((one, i) => !ONLY_CORNERS || isCorner(one, i));
}

/** Returns all combinations of links, families and `others`, as rows for describe.each and test.each. */
export function matrix<T>(others: readonly T[]): [LinkKind, Family, T][] {
  const rows = LINKS.flatMap((link) =>
    FAMILY_NAMES.flatMap((family) => others.map((other) => row(link, family, other))),
  );
  return corners(rows, ([link, family]) => (link === 'packet') === (family === 'IPv4'));
}

/** Returns a few rows with the xdp link, which differs from the other links only in how it moves frames. */
export function xdpRows<T>(first: T, second: T): [LinkKind, Family, T][] {
  return corners([row('xdp', 'IPv4', first), row('xdp', 'IPv6', second)], (_, i) => i === 0);
}

/**
 * `describe` for each row. A row whose link is not available is skipped with the reason.
 * @param name with a placeholder for each part of a row
 */
export function describeLinks<Row extends readonly [LinkKind, Family, ...unknown[]]>(
  rows: readonly Row[],
  name: string,
  body: (row: Row) => void,
): void {
  for (const row of rows) {
    const privilege = row[0] === 'xdp' ? xdpPrivilege() : { ok: true, reason: '' };
    describeIf(privilege, format(name, ...row), () => body(row));
  }
}

function row<T>(link: LinkKind, family: Family, other: T): [LinkKind, Family, T] {
  return [link, family, other];
}

/** `test` of what rxe and its kernel do. @param reason of the library for C programs not to be tested by it */
export function testOfRxe(name: string, reason: string, body: () => Promise<void>): void {
  test.skipIf(USES_LIBRARY)(USES_LIBRARY ? `${name} [skipped: ${reason}]` : name, body);
}

/** A guest with its network. */
class Machine {
  /** The machine of the test files before this one; their modules are gone, their process is not. */
  static readonly #KEY = Symbol.for('wasm-roce interop machine');

  /** Returns the machine of an earlier test file, made as it was after its boot, or else a new one. */
  static async take(mtu: number): Promise<Machine> {
    const earlier = Reflect.get(globalThis, Machine.#KEY) as Machine | undefined;
    Reflect.deleteProperty(globalThis, Machine.#KEY);
    if (earlier?.network.isCurrent && !earlier.guest.hasEnded) {
      earlier.network.plug(mtu);
      try {
        await earlier.guest.renew({ mtu, addresses: addressesOf(GUEST) });
        return new Machine(earlier.network, mtu, earlier.guest);
      } catch (error) {
        console.warn('another guest is booted:', error);
        await earlier.guest.stop();
        return new Machine(earlier.network, mtu, await Machine.#boot(earlier.network, mtu));
      }
    }
    await earlier?.guest.stop();
    const network = new InteropNetwork(mtu, { hasTap: !USES_LIBRARY });
    return new Machine(network, mtu, await Machine.#boot(network, mtu));
  }

  static #boot(network: InteropNetwork, mtu: number): Promise<Guest> {
    const options = { mtu, addresses: addressesOf(GUEST) };
    if (!USES_LIBRARY) return Guest.start({ tap: GUEST.tap, ...options });
    return LibraryHost.open({ ...options, plug: (pid) => network.plugNamespace(pid, mtu) });
  }

  #booting: Promise<void> | undefined;

  private constructor(
    readonly network: InteropNetwork,
    readonly mtu: number,
    public guest: Guest,
  ) {}

  /** Boots the guest again if it has ended: a test has stopped it, or its kernel has crashed. */
  async revive(): Promise<void> {
    if (!this.guest.hasEnded) return;
    this.#booting ??= Machine.#boot(this.network, this.mtu)
      .then((guest) => {
        this.guest = guest;
        return this.greet();
      })
      .finally(() => {
        this.#booting = undefined;
      });
    await this.#booting;
  }

  /**
   * Makes both ends know each other's MAC. rxe allows one second for its resolution, which may be too short on a busy
   * host.
   */
  async greet(): Promise<void> {
    if (USES_LIBRARY) return;
    for (const address of [CARD.ipv4, CARD.ipv6])
      await this.guest.run(['busybox', 'ping', '-c', '1', '-W', '10', address], { timeout: 20_000 });
  }

  /** Keeps the machine for the next test file, because a boot costs several seconds. It ends with this process. */
  async give(): Promise<void> {
    if (this.guest.hasEnded) return this.network.close();
    this.network.unplug();
    Reflect.set(globalThis, Machine.#KEY, this);
  }
}

/**
 * Things that a test leaves to the next one, or to its own repetition, when it fails or times out: programs of the
 * guest that hold a port, devices that hold the interface, a network that is down or loses packets.
 */
class LeftOvers {
  readonly #commands: Guest['commands'];
  readonly #devices = new Set(OurDevice.all);

  /** Before the test. */
  constructor(readonly machine: Machine) {
    this.#commands = machine.guest.commands;
  }

  /** Ends what has been started since. */
  async remove(): Promise<void> {
    const { guest, network } = this.machine;
    for (const device of OurDevice.all) if (!this.#devices.has(device)) await device[Symbol.asyncDispose]();
    network.raise();
    if (!guest.hasEnded) await guest.killCommands(this.#commands);
    // A command whose peer is gone ends by its own idle time, and holds the interface's UDP port until then.
    await commandsEnded();
    if (!guest.hasEnded) await guest.repairNetwork();
  }
}

/**
 * `describe` with one guest for all its tests. The files of a process have the same one after each other.
 *
 * A test may run up to three times (vitest.config.ts), because the stock programs and rxe have races that cannot be
 * mended here. They exit before an ACK or a farewell that the network loses, poll for what cannot come any more, or
 * measure while the emulated processor stands still. So a test makes its own queue pairs, ports and programs, and can
 * begin again.
 *
 * With WASM_ROCE_PEER=library the library for C programs takes rxe's place, on this host and without a guest.
 * @param mtu MTU of the interfaces; 9000 allows a path MTU of 4096
 */
export function describeWithRxe(name: string, mtu: number, body: (environment: Environment) => void): void {
  const reason = (USES_LIBRARY ? libraryUnavailable() : guestUnavailable()) ?? networkUnavailable();
  describe.skipIf(reason)(reason ? `${name} [skipped: ${reason}]` : name, () => {
    let machine: Machine | undefined;
    let earlier: LeftOvers | undefined;

    beforeAll(async () => {
      machine = await Machine.take(mtu);
      await machine.greet();
    }, 120_000);

    beforeEach(async () => {
      await machine?.revive();
      if (machine) earlier = new LeftOvers(machine);
    });

    // Tests that run at once end themselves what they have started: it cannot be told from that of the others.
    afterEach(async ({ task }) => {
      if (task.result?.state === 'fail' && !task.concurrent) await earlier?.remove();
    });

    afterAll(() => machine?.give());

    body({
      get guest() {
        if (!machine) throw new Error('the guest exists only inside tests');
        return machine.guest;
      },
    });
  });
}
