/**
 * Two cores, programs that do as they like with them, and a network between that loses, repeats and delays. Virtual time;
 * everything from one seed.
 */
import { CmCore } from '../../src/cm/core.js';
import type { CoreEvent } from '../../src/cm/events.js';
import { parseMad } from '../../src/cm/mad.js';
import type { Outgoing } from '../../src/cm/manager.js';
import { Random } from '../kit/random.js';
import { ACCEPT, CONNECT } from './talk.js';

export interface Weather {
  readonly drop: number;
  readonly duplicate: number;
  /** Longest way of a packet, ms; shorter than the packet life time (256 ms), or old packets meet new connections. */
  readonly delay: number;
}

export interface Habits {
  /** Probabilities. */
  readonly reject: number;
  /** Closing in the midst of anything. */
  readonly close: number;
  readonly disconnect: number;
  /** Longest time that a program thinks, ms. */
  readonly thinking: number;
}

interface Task {
  readonly at: number;
  readonly order: number;
  run(): void;
}

const PORT = 7174;
const ADDRESSES = ['10.0.0.1', '10.0.0.2'] as const;
/** Nothing may go on longer than this, ms. */
const LONGEST = 24 * 3600 * 1000;

/** One end: a core and its programs. */
export class Host {
  core!: CmCore;
  readonly guid: bigint;
  /** What became of our own attempts: id to the first answer. */
  readonly outcomes = new Map<string, string>();
  /** Connections that the programs hold. */
  readonly open = new Set<number>();
  starts = 0;
  #qpn = 1;

  constructor(
    readonly world: World,
    readonly address: string,
    readonly peer: string,
  ) {
    this.guid = 0x0200_00ff_fe00_0000n + BigInt(address.at(-1) as string);
    this.start();
  }

  /** Begins, or begins anew without knowing of what was: same GUID, other numbers. */
  start(): void {
    this.starts++;
    this.open.clear();
    const random = this.world.random.fork();
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
      this.world.now,
    );
    this.open.add(id);
    this.outcomes.set(this.#key(id), 'none');
    this.#maybeClose(id);
  }

  onEvent(event: CoreEvent): void {
    const { id } = event;
    const { random, habits } = this.world;
    const key = this.#key(id);
    if (this.outcomes.get(key) === 'none') this.outcomes.set(key, event.type);
    switch (event.type) {
      case 'CONNECT_REQUEST':
        this.open.add(id);
        this.#think(id, () => {
          if (random.chance(habits.reject)) this.core.reject(id, this.world.now);
          else this.core.accept(id, { ...ACCEPT, qpNum: this.#nextQpn() }, this.world.now);
        });
        this.#maybeClose(id);
        break;
      case 'CONNECT_RESPONSE':
        this.#think(id, () => {
          if (random.chance(habits.reject)) {
            this.core.reject(id, this.world.now);
          } else {
            this.core.establish(id, new Uint8Array(0), this.world.now);
            this.#maybeDisconnect(id);
          }
        });
        break;
      case 'ESTABLISHED':
        this.#maybeDisconnect(id);
        break;
      case 'DISCONNECTED':
        this.#think(id, () => this.core.disconnect(id, this.world.now));
        break;
      case 'REJECTED':
      case 'UNREACHABLE':
      case 'TIMEWAIT_EXIT':
        if (this.core.stateOf(id) === undefined) this.open.delete(id);
        break;
    }
  }

  close(id: number): void {
    this.open.delete(id);
    this.core.close(id, this.world.now);
  }

  #maybeDisconnect(id: number): void {
    if (this.world.random.chance(this.world.habits.disconnect))
      this.#think(id, () => this.core.disconnect(id, this.world.now));
  }

  #maybeClose(id: number): void {
    const { random, habits } = this.world;
    if (!random.chance(habits.close)) return;
    const { starts } = this;
    this.world.after(random.below(4 * habits.thinking + 10), () => starts === this.starts && this.close(id));
  }

  /** Does something later, unless the connection has moved on meanwhile: then the core refuses the call. */
  #think(id: number, act: () => void): void {
    const { starts } = this;
    const { random, habits } = this.world;
    this.world.after(random.below(habits.thinking + 1), () => {
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

export class World {
  now = 0;
  readonly random: Random;
  readonly hosts: readonly Host[];
  packets = 0;
  #tasks: Task[] = [];
  #order = 0;

  constructor(
    seed: number,
    public weather: Weather,
    public habits: Habits,
  ) {
    this.random = new Random(seed);
    const [a, b] = ADDRESSES;
    this.hosts = [new Host(this, a, b), new Host(this, b, a)];
  }

  after(delay: number, run: () => void): void {
    const task = { at: this.now + delay, order: this.#order++, run };
    const place = this.#tasks.findIndex(({ at }) => at > task.at);
    if (place < 0) this.#tasks.push(task);
    else this.#tasks.splice(place, 0, task);
  }

  /** Until nothing is under way and nobody waits for anything. */
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

  /** Connections that one end takes for established, and the other end does not know of as such. */
  halfOpen(): string[] {
    const found: string[] = [];
    for (const host of this.hosts) {
      const other = this.hosts.find(({ address }) => address === host.peer) as Host;
      for (const id of host.open) {
        if (host.core.stateOf(id) !== 'ESTABLISHED') continue;
        const peer = host.core.peerOf(id);
        if (peer === undefined || other.core.stateOf(peer) !== 'ESTABLISHED')
          found.push(`${host.address} ${id}: the peer's ${peer} is ${other.core.stateOf(peer ?? 0) ?? 'not there'}`);
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
    if (typeof parseMad(bytes) === 'string') throw new Error('a core has said something malformed');
    const { drop, duplicate, delay } = this.weather;
    const copies = this.random.chance(drop) ? 0 : this.random.chance(duplicate) ? 2 : 1;
    const from = local.replace('::ffff:', '');
    const to = this.hosts.find(({ address }) => address === remote.replace('::ffff:', ''));
    for (let i = 0; i < copies; i++)
      this.after(this.random.below(delay + 1), () =>
        to?.core.receive(bytes.slice(), { local: to.address, remote: from }, this.now),
      );
  }
}
