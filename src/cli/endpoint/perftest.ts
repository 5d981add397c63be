/** A server for perftest's programs, one client after the other or several at once. */
import { createServer, type Server, type Socket } from 'node:net';
import type { Device } from '../../index.js';
import { Output } from '../output.js';
import { Exchange } from '../perftest/handshake.js';
import { TEXT_KEYS } from '../perftest/keys.js';
import { KINDS, type Kind, type PerftestOptions } from '../perftest/kinds.js';
import { reportOf } from '../perftest/report.js';
import { runSession } from '../perftest/session.js';
import { Control, listen } from '../pingpong/handshake.js';
import type { PerftestConfig } from './config.js';
import { countsOf, hex } from './listener.js';
import type { Fields, Log } from './log.js';
import { GRACE_MS, type Service } from './service.js';

/** A client may be silent for so long (ms). */
const IDLE_MS = 30_000;
/** Longest spin before sleeping (ms). */
const SPIN_MS = 0.2;

export class PerftestService implements Service {
  readonly about: Fields;
  readonly #sessions = new Map<Control, Promise<void>>();
  #isClosing = false;

  /** @param host the address to listen on; undefined: all @throws the system's error, EADDRINUSE mostly */
  static async open(
    device: Device,
    config: PerftestConfig,
    host: string | undefined,
    log: Log,
  ): Promise<PerftestService> {
    const server = createServer({ allowHalfOpen: true });
    await listen(server, { port: config.port, ...(host !== undefined && { host }) });
    return new PerftestService(device, optionsOf(config), server, log);
  }

  private constructor(
    readonly device: Device,
    readonly options: PerftestOptions,
    readonly server: Server,
    readonly log: Log,
  ) {
    this.about = { service: options.kind.name, port: options.port };
    server.on('connection', (socket) => this.#take(socket));
    server.on('error', (error) => log.error('not accepted', error, this.about));
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.server.close();
    for (const control of this.#sessions.keys()) control.close();
    // one that waits for messages hears of it when the device goes, or when it has waited long enough
    const late = new Promise((resolve) => setTimeout(resolve, GRACE_MS).unref());
    await Promise.race([Promise.all(this.#sessions.values()), late]);
  }

  #take(socket: Socket): void {
    const control = new Control(socket, IDLE_MS);
    const session = this.#serve(control).finally(() => {
      control.close();
      this.#sessions.delete(control);
    });
    this.#sessions.set(control, session);
  }

  async #serve(control: Control): Promise<void> {
    const { device, options, log } = this;
    const peer = control.remoteAddress;
    let who: Fields = { ...this.about, peer };
    const begin = performance.now();
    const listeners = {
      onConnected: ([local]: readonly { readonly qpn: number }[]) => {
        if (local) who = { ...who, qpn: hex(local.qpn) };
        log.info('connected', who);
      },
      ...{ onInterval() {}, onBandwidth() {}, onLatency() {} },
    };
    try {
      const exchange = new Exchange(control, 'server', TEXT_KEYS);
      const end = { address: peer, port: options.port };
      const result = await runSession(device, exchange, options, end, listeners, new Output(true));
      const { bandwidth = [], latency = [] } = reportOf(device, 'server', options, result);
      log.info('disconnected', {
        ...who,
        seconds: Math.round(performance.now() - begin) / 1000,
        ...countsOf(result.counters),
        ...(bandwidth[0] && { mibPerSecond: Math.round(bandwidth[0].average * 100) / 100 }),
        ...(latency[0] && { typicalUs: Math.round(latency[0].typical * 100) / 100 }),
      });
    } catch (error) {
      if (this.#isClosing) log.info('disconnected', who);
      else log.error('disconnected', error, who);
    }
  }
}

/** Those of the stock program, but for what the configuration says. */
function optionsOf({ type, port, size, iters, qps }: PerftestConfig): PerftestOptions {
  const kind = KINDS.find(({ name }) => name === type) as Kind;
  const count = iters ?? kind.iters;
  return {
    ...{ kind, port, rdmaCm: false, transport: 'RC', qps, size: size ?? kind.size, all: false, iters: count },
    ...{ txDepth: kind.measures === 'lat' ? 1 : Math.min(128, count), rxDepth: Math.min(512, count), postList: 1 },
    ...{ bidirectional: false, immediate: false, atomic: 'FETCH_AND_ADD', trafficClass: 0, timeout: 14, retryCnt: 7 },
    ...{ durationMs: 0, gigabits: false, idleMs: IDLE_MS, spinMs: SPIN_MS, open: {} },
  };
}
