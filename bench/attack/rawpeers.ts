/**
 * Peers that connect and then break the rules. They are written frame by frame with the encoders of the tests, because
 * an adapter would not do what they do.
 */
import { ipBytes } from '../../src/probe/packet/address.js';
import { datagram, encodeFrame, flowOf, nak, Op, type Packet, request } from '../../src/probe/packet/packets.js';
import * as mads from '../../test/cm/mads.js';
import { payloadsOf, type Rig } from '../../test/link/rig.js';
import type { Victim } from './floods.js';
import { Pace } from './pace.js';
import { MEMORY_BYTES, MEMORY_PORT, SERVICE_PORT } from './target.js';

/** A peer at work. */
export interface RawPeer {
  /** Begins. @param rate connections, requests or messages of the peer, a second */
  start(rate: number): void;
  /** Ends. @returns the frames a second that it has sent */
  stop(): number;
}

/** The end of a connection at this peer. */
interface RawConnection {
  readonly id: number;
  readonly tid: bigint;
  /** Number of our queue pair, which exists in these frames only. */
  readonly qpn: number;
  /** The target's communication id and queue pair number. */
  readonly remote: number;
  readonly remoteQpn: number;
  /** The PSN at which the target lets us begin. */
  readonly psn: number;
  /** The target's `mr.remote`, where the service has sent it. */
  readonly memory: { readonly addr: bigint; readonly rkey: number };
  /** The frames that it sends again and again. */
  readonly frames: Uint8Array[];
}

const QKEY = 0x80010000;
const GUID = 0x0200_00ff_fe00_9866n;
const MTU = 1024;
const RNR_WITHOUT_END = 7;
/** READs and atomics that one connection may have in flight. */
const DEPTH = 16;
/** READs and atomics come from so many connections, messages of the connection manager from one. */
const CONNECTIONS = 4;

const BTH_BYTES = 12;
const DETH_BYTES = 8;
/** The body of a message of the connection manager. */
const BODY_AT = BTH_BYTES + DETH_BYTES + 24;
const ATTRIBUTE_REP = 0x13;

/** Connects to a service, and acts on what comes back. */
class Peers implements RawPeer {
  readonly #pace = new Pace();
  readonly #established: RawConnection[] = [];
  #receiving: NodeJS.Timeout | undefined;
  #dialled = 0;
  #frames = 0;
  #since = 0;
  #rig: Rig | undefined;

  constructor(
    private readonly victim: Victim,
    private readonly openRig: () => Rig,
    private readonly options: {
      readonly port: number;
      /** Connects so many times; the rate is that of the frames. Undefined: the rate is that of the connects. */
      readonly connections?: number;
      /** The target has accepted. */
      readonly onAccepted?: (peers: Peers, connection: RawConnection) => void;
      /** Builds the frames that a connection sends again and again; `n` is 0 to `DEPTH` - 1. */
      readonly build?: (peers: Peers, connection: RawConnection, n: number) => Uint8Array;
      /** A packet of the target for the queue pair. @param psn its PSN */
      readonly onPacket?: (peers: Peers, connection: RawConnection, opcode: number, psn: number) => void;
    },
  ) {}

  start(rate: number): void {
    this.#rig = this.openRig();
    this.#since = performance.now();
    const { connections, build } = this.options;
    this.#receiving = setInterval(() => this.#receive(), 1);
    for (let n = 0; n < (connections ?? 0); n++) this.#dial();
    this.#flush();
    this.#pace.start(rate, (first, count) => {
      const open = this.#established;
      if (connections !== undefined && open.length < connections) return 0;
      let sent = 0;
      for (; sent < count && (this.#rig?.tx.free ?? 0) > 2; sent++) {
        const n = first + sent;
        if (connections === undefined) this.#dial();
        else if (build !== undefined) {
          const connection = open[n % connections] as RawConnection;
          const k = Math.floor(n / connections) % DEPTH;
          connection.frames[k] ??= build(this, connection, k);
          this.send(connection.frames[k]);
        }
      }
      this.#flush();
      return sent;
    });
  }

  stop(): number {
    clearInterval(this.#receiving);
    this.#pace.stop();
    return this.#frames / ((performance.now() - this.#since) / 1000);
  }

  /** Returns the frame of a message of the connection manager. */
  mad(payload: Uint8Array): Uint8Array {
    return encodeFrame(
      this.#flow({ srcQp: 1, destQp: 1 }),
      datagram.sendOnly({ psn: 0, qkey: QKEY, srcQp: 1, payload }),
    );
  }

  /** Returns the frame of a packet for the target's queue pair. */
  packet({ remoteQpn }: RawConnection, packet: Packet): Uint8Array {
    return encodeFrame(this.#flow({ destQp: remoteQpn }), packet);
  }

  #flow(ends: { readonly srcQp?: number; readonly destQp: number }) {
    const { attacker, target } = this.victim;
    const hosts = { srcIp: attacker.address, srcMac: attacker.mac, dstIp: target.address, dstMac: target.mac };
    return flowOf({ ...hosts, ...ends });
  }

  #dial(): void {
    const n = this.#dialled++;
    const { attacker, target } = this.victim;
    const [from, to] = [[...ipBytes(attacker.address)], [...ipBytes(target.address)]];
    const ipVersion = from.length === 4 ? 0x40 : 0x60;
    const times = { ackTimeout: 31, localTimeout: 31, remoteTimeout: 31 };
    const own = { tid: BigInt(n + 1), id: n + 1, qpn: 2 + n, psn: 0, guid: GUID };
    const { port } = this.options;
    this.send(
      this.mad(
        mads.req({ ...own, ...times, port, from, to, ipVersion, depth: DEPTH, resources: DEPTH, rnr: RNR_WITHOUT_END }),
      ),
    );
  }

  #receive(): void {
    const rig = this.#rig as Rig;
    while (rig.link.receive(0) > 0)
      for (const arrived of rig.take()) for (const packet of payloadsOf(arrived)) this.#onPacket(packet);
    this.#flush();
  }

  #onPacket(packet: Buffer): void {
    const opcode = packet[0] as number;
    const destQp = packet.readUIntBE(5, 3);
    const isRep = destQp === 1 && packet.length > BODY_AT + 36 && packet.readUInt16BE(BODY_AT - 8) === ATTRIBUTE_REP;
    if (isRep) this.#onRep(packet.subarray(BODY_AT));
    if (destQp === 1) return;
    const { onPacket } = this.options;
    const connection = onPacket && this.#established.find(({ qpn }) => qpn === destQp);
    if (connection !== undefined) onPacket?.(this, connection, opcode, packet.readUIntBE(9, 3));
  }

  #onRep(rep: Buffer): void {
    const id = rep.readUInt32BE(4);
    const { onAccepted, port } = this.options;
    if (onAccepted === undefined) return;
    const data = rep.subarray(36, rep.indexOf('}', 36) + 1).toString('latin1');
    const start = data.indexOf('{');
    const { addr, rkey } = port === MEMORY_PORT ? JSON.parse(data.slice(start)) : { addr: 0, rkey: 0 };
    const memory = { addr: BigInt(addr), rkey };
    const remote = { remote: rep.readUInt32BE(0), remoteQpn: rep.readUIntBE(12, 3), psn: rep.readUIntBE(20, 3) };
    const connection = { id, tid: BigInt(id), qpn: 1 + id, ...remote, memory, frames: [] };
    if (this.options.connections !== undefined) {
      if (this.#established.some((other) => other.id === id)) return;
      this.#established.push(connection);
    }
    onAccepted(this, connection);
  }

  /** Sends a frame, if there is room for it. */
  send(bytes: Uint8Array): void {
    const rig = this.#rig as Rig;
    if (rig.tx.free === 0) rig.link.send(0);
    if (rig.tx.free === 0) return;
    rig.put(bytes);
    this.#frames++;
  }

  #flush(): void {
    this.#rig?.link.send(0);
  }
}

type Options = ConstructorParameters<typeof Peers>[2];
const peers = (options: Options) => (victim: Victim, openRig: () => Rig) => new Peers(victim, openRig, options);

const sendRtu = (all: Peers, connection: RawConnection) => all.send(all.mad(mads.rtu(connection)));

/** Requests of a connection: the first `DEPTH` are new, all others are repetitions of these. */
const repeated = (packets: number, build: (connection: RawConnection, psn: number) => Packet): Options => ({
  port: MEMORY_PORT,
  connections: CONNECTIONS,
  onAccepted: sendRtu,
  build: (all, connection, n) => all.packet(connection, build(connection, (connection.psn + n * packets) & 0xffffff)),
});
const at = ({ memory }: RawConnection) => ({ va: memory.addr, rkey: memory.rkey });

/** The peers that are written frame by frame. */
export const RAW_PEERS = {
  'half-open connections': peers({ port: SERVICE_PORT }),
  'silent peers': peers({ port: SERVICE_PORT, onAccepted: sendRtu }),
  'connect and disconnect': peers({
    port: SERVICE_PORT,
    onAccepted: (all, connection) => {
      sendRtu(all, connection);
      all.send(all.mad(mads.dreq({ ...connection, qpn: connection.remoteQpn })));
    },
  }),
  'RTU, own connection': peers({
    port: SERVICE_PORT,
    connections: 1,
    onAccepted: sendRtu,
    build: (all, connection) => all.mad(mads.rtu(connection)),
  }),
  'READ, repeated': peers(
    repeated(MEMORY_BYTES / MTU, (connection, psn) => request.read({ psn, ...at(connection), length: MEMORY_BYTES })),
  ),
  'atomic, repeated': peers(repeated(1, (connection, psn) => request.fetchAdd({ psn, ...at(connection), add: 1n }))),
  'RNR without end': peers({
    port: SERVICE_PORT,
    connections: CONNECTIONS,
    onAccepted: (all, connection) => {
      sendRtu(all, connection);
      const payload = new Uint8Array(512);
      for (let n = 0; n < 4; n++)
        all.send(
          all.packet(connection, request.sendOnly({ psn: (connection.psn + n) & 0xffffff, payload, ackReq: true })),
        );
    },
    // the echoes: no receive is ever ready for them
    onPacket: (all, connection, opcode, psn) => {
      if (opcode <= Op.SEND_ONLY) all.send(all.packet(connection, nak.rnr({ psn, timer: 1 })));
    },
  }),
} satisfies Record<string, (victim: Victim, openRig: () => Rig) => RawPeer>;

/** Name of such a peer. */
export type RawPeerName = keyof typeof RAW_PEERS;
