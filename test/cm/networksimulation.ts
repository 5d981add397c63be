/**
 * Two cores with random applications, and a network between them that loses, duplicates and delays packets. Time is
 * virtual, and one seed determines everything.
 */

import type { Outgoing } from '../../src/cm/core/context.js';
import { CmCore } from '../../src/cm/core/core.js';
import type { CoreEvent } from '../../src/cm/core/events.js';
import { parseMad } from '../../src/cm/core/mad.js';
import { Random } from '../kit/random.js';
import { ACCEPT, CONNECT } from './conversation.js';

export interface NetworkFaults {
  readonly drop: number;
  readonly duplicate: number;
  /** Maximum delay of a packet, ms; less than the packet life time (256 ms), or old packets reach new connections. */
  readonly delay: number;
}

export interface ProgramBehaviour {
  /** Probability of rejecting a request or reply. */
  readonly reject: number;
  /** Probability of closing an id at a random time. */
  readonly close: number;
  /** Probability of disconnecting. */
  readonly disconnect: number;
  /** Maximum time before an application reacts to an event, ms. */
  readonly maxDelay: number;
}

interface Task {
  readonly at: number;
  readonly order: number;
  run(): void;
}

const PORT = 7174;
const ADDRESSES = ['10.0.0.1', '10.0.0.2'] as const;
/** Time limit of a simulation, ms. */
const LONGEST = 24 * 3600 * 1000;

/** One end: a core and its application. */
export class SimulatedHost {
  core!: CmCore;
  readonly guid: bigint;
  /** First event of each own attempt, by start and id. */
  readonly outcomes = new Map<string, string>();
  /** Connections that the application has not closed. */
  readonly open = new Set<number>();
  /** Connections whose peer has not answered in time, as the application was told. */
  readonly unreachable = new Set<number>();
  starts = 0;
  #qpn = 1;

  constructor(
    readonly network: NetworkSimulation,
    readonly address: string,
    readonly peer: string,
  ) {
    this.guid = 0x0200_00ff_fe00_0000n + BigInt(address.at(-1) as string);
    this.start();
  }

  /** Starts the host, or restarts it without memory of its connections: same GUID, other ids. */
  start(): void {
    this.starts++;
    this.open.clear();
    const random = this.network.random.fork();
    this.core = new CmCore({
      guid: this.guid,
      random: () => random.u32(),
      host: { isLocal: (gid) => gid === `::ffff:${this.address}`, maxMtu: 4096 },
    });
    this.core.listen({ space: 'TCP', port: PORT, transport: 'RC', backlog: 2000 });
  }

  connect(): void {
    const id = this.core.connect(
      {
        ...CONNECT,
        source: { address: this.address, port: 50000 },
        destination: { address: this.peer, port: PORT },
        qpNum: this.#nextQpn(),
      },
      this.network.now,
    );
    this.open.add(id);
    this.outcomes.set(this.#key(id), 'none');
    this.#maybeClose(id);
  }

  onEvent(event: CoreEvent): void {
    const { id } = event;
    const { random, behaviour } = this.network;
    const key = this.#key(id);
    if (this.outcomes.get(key) === 'none') this.outcomes.set(key, event.type);
    switch (event.type) {
      case 'CONNECT_REQUEST':
        this.open.add(id);
        this.#later(id, () => {
          if (random.chance(behaviour.reject)) this.core.reject(id, this.network.now);
          else this.core.accept(id, { ...ACCEPT, qpNum: this.#nextQpn() }, this.network.now);
        });
        this.#maybeClose(id);
        break;
      case 'CONNECT_RESPONSE':
        this.#later(id, () => {
          if (random.chance(behaviour.reject)) {
            this.core.reject(id, this.network.now);
          } else {
            this.core.establish(id, new Uint8Array(0), this.network.now);
            this.#maybeDisconnect(id);
          }
        });
        break;
      case 'ESTABLISHED':
        this.#maybeDisconnect(id);
        break;
      case 'DISCONNECTED':
        this.#later(id, () => this.core.disconnect(id, this.network.now));
        break;
      case 'REJECTED':
      case 'UNREACHABLE':
      case 'TIMEWAIT_EXIT':
        if (event.type === 'UNREACHABLE') this.unreachable.add(id);
        if (this.core.stateOf(id) === undefined) this.open.delete(id);
        break;
    }
  }

  close(id: number): void {
    this.open.delete(id);
    this.core.close(id, this.network.now);
  }

  #maybeDisconnect(id: number): void {
    if (this.network.random.chance(this.network.behaviour.disconnect))
      this.#later(id, () => this.core.disconnect(id, this.network.now));
  }

  #maybeClose(id: number): void {
    const { random, behaviour } = this.network;
    if (!random.chance(behaviour.close)) return;
    const { starts } = this;
    this.network.after(random.below(4 * behaviour.maxDelay + 10), () => starts === this.starts && this.close(id));
  }

  /** Calls `act` later. The core may refuse the call when the state has changed meanwhile. */
  #later(id: number, act: () => void): void {
    const { starts } = this;
    const { random, behaviour } = this.network;
    this.network.after(random.below(behaviour.maxDelay + 1), () => {
      if (starts !== this.starts || !this.open.has(id)) return;
      try {
        act();
      } catch (error) {
        if ((error as { code?: string }).code !== 'EINVAL') throw error;
      }
    });
  }

  #key(id: number): string {
    return `${this.starts}/${id}`;
  }

  #nextQpn(): number {
    return this.starts * 100_000 + this.#qpn++;
  }
}

export class NetworkSimulation {
  now = 0;
  readonly random: Random;
  readonly hosts: readonly SimulatedHost[];
  packets = 0;
  #tasks: Task[] = [];
  #order = 0;

  constructor(
    seed: number,
    public faults: NetworkFaults,
    public behaviour: ProgramBehaviour,
  ) {
    this.random = new Random(seed);
    const [a, b] = ADDRESSES;
    this.hosts = [new SimulatedHost(this, a, b), new SimulatedHost(this, b, a)];
  }

  after(delay: number, run: () => void): void {
    const task = { at: this.now + delay, order: this.#order++, run };
    const place = this.#tasks.findIndex(({ at }) => at > task.at);
    if (place < 0) this.#tasks.push(task);
    else this.#tasks.splice(place, 0, task);
  }

  /** Runs until no packet, task or deadline is pending. */
  settle(): void {
    for (;;) {
      this.#exchange();
      const next = Math.min(this.#tasks[0]?.at ?? Infinity, ...this.hosts.map(({ core }) => core.nextDeadline()));
      if (next === Infinity) return;
      if (next > LONGEST) throw new Error(`still at work after ${this.now} ms`);
      this.now = Math.max(this.now, next);
      if (this.#tasks[0] !== undefined && this.#tasks[0].at <= this.now) this.#tasks.shift()?.run();
      for (const { core } of this.hosts) core.expire(this.now);
    }
  }

  /**
   * Returns connections that are established at one end only. Not those whose RTU has not reached the server in time:
   * the REJ that says so may be lost, too, and no message follows. Only data would show that the peer is gone.
   */
  halfOpen(): string[] {
    const found: string[] = [];
    for (const host of this.hosts) {
      const other = this.hosts.find(({ address }) => address === host.peer) as SimulatedHost;
      for (const id of host.open) {
        if (host.core.stateOf(id) !== 'ESTABLISHED') continue;
        const peer = host.core.remoteCommIdOf(id) as number;
        const state = other.core.stateOf(peer);
        if (state !== 'ESTABLISHED' && !other.unreachable.has(peer))
          found.push(`${host.address} ${id}: the peer's ${peer} is ${state ?? 'not there'}`);
      }
    }
    return found;
  }

  #exchange(): void {
    for (let isBusy = true; isBusy; ) {
      isBusy = false;
      for (const host of this.hosts) {
        for (const message of host.core.takeMessages()) this.#post(message);
        for (const event of host.core.takeEvents()) {
          host.onEvent(event);
          isBusy = true;
        }
      }
    }
  }

  #post({ local, remote, bytes }: Outgoing): void {
    this.packets++;
    if (typeof parseMad(bytes) === 'string') throw new Error('a core has sent a malformed message');
    const { drop, duplicate, delay } = this.faults;
    const copies = this.random.chance(drop) ? 0 : this.random.chance(duplicate) ? 2 : 1;
    const from = local.replace('::ffff:', '');
    const to = this.hosts.find(({ address }) => address === remote.replace('::ffff:', ''));
    for (let i = 0; i < copies; i++)
      this.after(this.random.below(delay + 1), () =>
        to?.core.receive(bytes.slice(), { local: to.address, remote: from }, this.now),
      );
  }
}
