/** Peers that keep to the protocol, and take all that it gives them. They are devices of this project. */
import { type Connection, type Device, openDevice, type RemoteMemory } from '../../src/index.js';
import type { Victim } from './floods.js';
import { MEMORY_PORT, SERVICE_PORT } from './target.js';

/** A peer at work. */
export interface DevicePeer {
  /** Begins. */
  start(): void;
  /** Ends. @returns the number of requests that were completed, a second */
  stop(): number;
}

/** READs and atomics that one connection has in flight. */
const DEPTH = 16;

/** Connections that send requests without end. */
class Requesters implements DevicePeer {
  #done = 0;
  #since = 0;
  #isRunning = false;

  constructor(
    private readonly victim: Victim,
    private readonly port: number,
    private readonly connections: number,
    /** Sends one request. */
    readonly request: (connection: Connection, remote: RemoteMemory) => Promise<unknown>,
  ) {}

  start(): void {
    this.#isRunning = true;
    this.#since = performance.now();
    void this.#run();
  }

  stop(): number {
    this.#isRunning = false;
    return this.#done / ((performance.now() - this.#since) / 1000);
  }

  async #run(): Promise<void> {
    const { attacker, target } = this.victim;
    const device: Device = await openDevice({ link: 'packet', interface: attacker.interface });
    for (let n = 0; n < this.connections; n++) {
      const sizes = { messageBytes: 65536, receives: 8, sends: DEPTH, closeTimeout: 1000 };
      const connection = await device.connect({ host: target.address, port: this.port, ...sizes });
      const text = Buffer.from(connection.privateData).toString('latin1');
      const remote = this.port === MEMORY_PORT ? JSON.parse(text.slice(0, text.indexOf('}') + 1)) : undefined;
      for (let k = 0; k < DEPTH; k++) void this.#repeat(connection, remote).catch(() => {});
    }
  }

  async #repeat(connection: Connection, remote: RemoteMemory): Promise<void> {
    while (this.#isRunning) {
      await this.request(connection, remote);
      this.#done++;
    }
  }
}

const requesters = (port: number, connections: number, request: Requesters['request']) => (victim: Victim) =>
  new Requesters(victim, port, connections, request);

/** The peers that are devices. */
export const DEVICE_PEERS = {
  READ: requesters(MEMORY_PORT, 4, (connection, remote) => connection.read(remote)),
  atomics: requesters(MEMORY_PORT, 4, (connection, remote) => connection.fetchAdd(remote, 1n)),
  // the service sends every message back, and these peers take none
  'never-reading peers': requesters(SERVICE_PORT, 64, (connection) => connection.send(Buffer.alloc(512))),
} satisfies Record<string, (victim: Victim) => DevicePeer>;

/** Name of such a peer. */
export type DevicePeerName = keyof typeof DEVICE_PEERS;
