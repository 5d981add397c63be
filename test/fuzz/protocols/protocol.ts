/**
 * Fuzzes a protocol: a hostile end sends messages whose integers are at their edges, to a service of ours or to our
 * clients. No message may end more than its connection: nothing is uncaught, an honest client is served, and the memory
 * comes back.
 */
import type { Writable } from 'node:stream';
import { createMemoryHub, type Device, openDevice } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import type { Random } from '../../kit/random.js';
import { Uncaught } from '../../kit/uncaught.js';
import { HOST, OWN_HOST } from '../../protocols/hosts.js';
import type { Ends, Protocol } from '../../protocols/protocols.js';
import type { FuzzTarget, Session } from '../fuzzer.js';
import { type Meet, RawEnd } from './rawend.js';
import { Act, decodeStep, encodeStep, type PartialStep } from './step.js';

/** The address of the hostile end. */
export const HOSTILE_HOST = '10.0.0.66';

/** The target, while it is open. */
export interface Subject {
  readonly meet: Meet;
  /** An honest client is served. */
  talk(): Promise<void>;
  close(): Promise<unknown>;
}

export interface FuzzedProtocol {
  readonly name: string;
  readonly about: string;
  /** Private data that begins a connection. */
  readonly privateData: (random?: Random) => Uint8Array;
  /** @param hostile the device of the hostile end, at `HOSTILE_HOST` */
  open(ends: Ends, hostile: Device): Promise<Subject>;
  /** Makes a message. @param address of memory that it may name, and its key @param rkey */
  message(random: Random, address: bigint, rkey: number): PartialStep;
  /** Takes what the other end has told of its memory. */
  learn?(end: RawEnd): void;
}

const BATCH = 16;
/** Connections of the session that were written to. */
let written = 0;
/** Share of the memory that the device keeps for the next connections: buffers of messages. */
const KEPT = 1 / 32;
const turn = () => new Promise((resolve) => setImmediate(resolve));

class ProtocolSession implements Session {
  readonly #uncaught = new Uncaught();

  private constructor(
    readonly protocol: FuzzedProtocol,
    readonly devices: readonly Device[],
    readonly subject: Subject,
    readonly end: RawEnd,
    readonly peer: Device,
    readonly before: number,
  ) {}

  static async open(protocol: FuzzedProtocol, seed: number): Promise<ProtocolSession> {
    written = 0;
    const hub = createMemoryHub();
    const open = (address: string, n: number) => openDevice({ hub, addresses: [address], seed: seed ^ n });
    const [device, peer, hostile] = [await open(OWN_HOST, 1), await open(HOST, 2), await open(HOSTILE_HOST, 3)];
    const subject = await protocol.open({ device, peer }, hostile);
    const end = await RawEnd.open(hostile, subject.meet);
    // what is kept for later connections is there after the first one
    await subject.talk();
    await end.connect(protocol.privateData());
    await end.leave();
    const available = () => peer.query().memoryAvailable;
    for (let last = -1; last !== available(); ) {
      last = available();
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    return new ProtocolSession(protocol, [device, peer, hostile], subject, end, peer, available());
  }

  next(random: Random): Uint8Array {
    const { protocol, end } = this;
    if (random.chance(0.02)) return encodeStep({ act: Act.LEAVE });
    if (random.chance(0.05)) return encodeStep({ act: Act.MEET, payload: protocol.privateData(random) });
    return encodeStep(protocol.message(random, end.address, end.memory.rkey));
  }

  async feed(inputs: readonly Uint8Array[]): Promise<void> {
    for (const input of inputs) {
      const step = decodeStep(input);
      if (!this.end.isConnected && step.act < Act.LEAVE) await this.end.connect(this.protocol.privateData());
      this.protocol.learn?.(this.end);
      await this.end.do(step);
      await turn();
    }
    for (let n = 0; n < 2; n++) await turn();
    this.#uncaught.check();
  }

  async check(): Promise<void> {
    await this.end.leave();
    await this.subject.talk();
    await eventually(() => {
      const { memoryAvailable, memoryBytes } = this.peer.query();
      const missing = this.before - memoryAvailable;
      if (missing > memoryBytes * KEPT) throw new Error(`${missing} bytes of the device have not come back`);
      // that of the connection manager stays
      const qps = this.peer.qps().filter(({ qpNum }) => qpNum !== 1);
      if (qps.length > 0) throw new Error(`${qps.length} queue pairs of the device are left: ${qps.join(', ')}`);
    });
    this.#uncaught.check();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end.leave();
    await this.subject.close();
    for (const device of this.devices) await device.close({ force: true });
    await turn();
    this.#uncaught[Symbol.dispose]();
  }
}

/** Lets the device that is under attack be the client of an honest server. */
export async function talkAsClient({ serve, talk }: Protocol, { device, peer }: Ends): Promise<void> {
  const ends = { device: peer, peer: device, host: OWN_HOST };
  const end = await serve(ends);
  await talk(ends);
  await end();
}

/**
 * Writes to a socket until it is destroyed. It writes from immediates, where an exception of the transport has no
 * caller that catches it. The first write comes a different number of turns after each connection begins: before or
 * after the peer has named its memory.
 */
export function keepWriting(socket: Writable): void {
  let turns = written++ % 16;
  const write = () => {
    if (socket.destroyed) return;
    if (--turns < 0 && socket.writableLength === 0) socket.write(Buffer.alloc(70_000));
    setImmediate(write);
  };
  write();
}

/** @returns the target of a protocol */
export const protocolTarget = (protocol: FuzzedProtocol): FuzzTarget => ({
  name: protocol.name,
  about: protocol.about,
  batch: BATCH,
  batches: 100,
  isVirtual: true,
  open: (seed) => ProtocolSession.open(protocol, seed),
});
