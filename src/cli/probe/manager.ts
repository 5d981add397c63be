/** The connection manager of a peer on a real link: what checks need of it, and whether it is there. */
import { lookup } from 'node:dns/promises';
import { isIPv4 } from 'node:net';
import { Scope } from '../../base/scope.js';
import type { Device } from '../../index.js';
import {
  type CmCheck,
  type CmOptions,
  type CmPeer,
  type CmWay,
  LinkPort,
  MadPort,
  runCheck,
  type ScriptedLink,
} from '../../probe.js';
import { flowTo, ScriptedQueues } from './queues.js';

/** Port space of rdma_cm for connections: bits 16 to 31 of a service id. */
const PS_TCP = 0x0106n;
/** A port that nobody serves: IANA has it for a service that is long gone. */
const UNKNOWN_PORT = 1;

/** Shows whether the manager answers, and whether a program accepts connections. */
const TRIAL: CmCheck = {
  ...{ number: 0, name: 'trial', title: 'A program accepts connections', clause: 'none' },
  ...{ sends: 'a REQ, an RTU, a DREQ', expects: 'a REP', connects: { service: true } },
  async run(talk) {
    await talk.established();
  },
};

/** Options of `PeerManager`. */
export interface PeerManagerOptions {
  readonly device: Device;
  readonly link: ScriptedLink;
  /** Address or name of the peer. */
  readonly host: string;
  /** Other addresses of the peer. Default: none but those of its name. */
  readonly gids?: readonly string[];
  /** Port of rdma_cm on which a program accepts connections. */
  readonly port: number;
}

/** Returns the kind of an address, which two addresses share that reach each other: its family and its scope. */
const kindOf = (address: string): string => `${isIPv4(address)} ${/^(fe[89ab][0-9a-f]:|169\.254\.)/i.test(address)}`;

/** Opens the connection manager of a peer for one check after the other. */
export class PeerManager {
  readonly #options: PeerManagerOptions;
  readonly #open = new Scope();
  #trial: Promise<{ readonly answers: boolean; readonly serves: boolean; readonly why: string }> | undefined;
  readonly #queues: ScriptedQueues;

  constructor(options: PeerManagerOptions) {
    this.#options = options;
    this.#queues = new ScriptedQueues(options.device, options.link);
  }

  /** Returns the manager, or what to start on the peer. */
  async open({ service }: CmOptions): Promise<CmPeer | string> {
    this.#trial ??= this.#try();
    const { answers, serves, why } = await this.#trial;
    return (service ? serves : answers) ? await this.#connect() : why;
  }

  /** Tries the manager again. @returns whether it answers; undefined if it has never answered */
  async answers(): Promise<boolean | undefined> {
    const before = await this.#trial;
    return before?.answers ? (await this.#try()).answers : undefined;
  }

  /** Gives back what was opened since the last call. */
  async release(): Promise<void> {
    await this.#open.close();
  }

  async #try() {
    const peer = await this.#connect();
    const { verdict, text, evidence } = await runCheck(TRIAL, { responder: async () => '', cm: async () => peer });
    await this.release();
    const answers = evidence.some(({ direction }) => direction === 'in');
    return { answers, serves: verdict !== 'not reachable', why: text };
  }

  async #connect(): Promise<CmPeer> {
    const { device, link, host, port, gids = [] } = this.#options;
    const [{ address }, named] = await Promise.all([lookup(host), lookup(host, { all: true })]);
    const addresses = new Set([address, ...named.map((one) => one.address), ...gids]);
    const mtu = device.queryPort().activeMtu;
    const there = await flowTo(device, address, 1, 1);
    const mads = this.#open.add(new MadPort(link, there, mtu));
    return {
      port: mads,
      service: (PS_TCP << 16n) | BigInt(port),
      unknownService: (PS_TCP << 16n) | BigInt(UNKNOWN_PORT),
      start: `wasm-roce endpoint --serve regions:${port}, or ucmatose -c 1000 -C 0 -p ${port}`,
      ways: this.#ways([...addresses]),
      queue: async () => {
        const { qpn, queue } = await this.#queues.open(this.#open);
        const sport = 0xc000 | (qpn & 0x3fff);
        const port = (destQp: number) => new LinkPort(queue, { ...there, srcQp: qpn, destQp, sport }, mtu);
        return { qpn, port };
      },
    };
  }

  /** Returns the ways to addresses of the peer. */
  #ways(addresses: readonly string[]): CmWay[] {
    const { device } = this.#options;
    return device.gids.flatMap(({ address: from, index }) =>
      addresses
        .filter((to) => kindOf(to) === kindOf(from))
        .map((to) => ({ from, to, flow: () => flowTo(device, to, 1, 1, index) })),
    );
  }
}
