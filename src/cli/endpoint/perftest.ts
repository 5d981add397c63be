/** A server for the programs of perftest, for several clients at once, on the device by which each of them comes. */
import { createServer, type Server, type Socket } from 'node:net';
import { type DeviceUse, useDevice } from '../../deviceuse.js';
import type { Device } from '../../index.js';
import { qpnText } from '../hex.js';
import { Output } from '../output.js';
import { Handshake } from '../perftest/communication/handshake.js';
import { TEXT_KEYS } from '../perftest/communication/keys.js';
import { KINDS, type PerftestOptions, type TestKind } from '../perftest/parameters.js';
import { reportOf } from '../perftest/report.js';
import { runSession } from '../perftest/session.js';
import { TcpChannel } from '../tcpchannel.js';
import { listen } from '../tcplistener.js';
import { trafficCounts } from './listener.js';
import type { Fields, Log } from './log.js';
import type { PerftestConfig } from './schema.js';
import { GRACE_MS, type Service } from './service.js';

/** Time that a client may be silent (ms). */
const IDLE_MS = 30_000;
/** Time that a client has for its first message (ms). */
const HELLO_MS = 5_000;
/** Clients that have not sent their first message; one more ends the oldest of them. */
const MAX_SILENT = 32;
/** Clients at once; the system refuses more. */
const MAX_SESSIONS = 128;
/** Longest spin before sleeping (ms). */
const SPIN_MS = 0.2;

export class PerftestService implements Service {
  readonly about: Fields;
  readonly #sessions = new Map<TcpChannel, Promise<void>>();
  /** Those that have not sent anything, the oldest first. */
  readonly #silent = new Set<TcpChannel>();
  #isClosing = false;

  /**
   * @param device the only one; undefined: that of the interface by which a client has come
   * @param host the address to listen on; undefined: all
   * @throws the system's error, mostly EADDRINUSE
   */
  static async open(
    device: Device | undefined,
    config: PerftestConfig,
    host: string | undefined,
    log: Log,
  ): Promise<PerftestService> {
    const server = createServer({ allowHalfOpen: true });
    server.maxConnections = MAX_SESSIONS;
    await listen(server, { port: config.port, ...(host !== undefined && { host }) });
    return new PerftestService(device, optionsOf(config), server, log);
  }

  private constructor(
    readonly device: Device | undefined,
    readonly options: PerftestOptions,
    readonly server: Server,
    readonly log: Log,
  ) {
    this.about = { service: options.kind.name, port: options.port };
    server.on('connection', (socket) => this.#accept(socket));
    server.on('error', (error) => log.error('not accepted', error, this.about));
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.server.close();
    for (const channel of this.#sessions.keys()) channel.close();
    // a session that waits for messages ends with the device, or when its time is over
    const late = new Promise((resolve) => setTimeout(resolve, GRACE_MS).unref());
    await Promise.race([Promise.all(this.#sessions.values()), late]);
  }

  #accept(socket: Socket): void {
    const channel = new TcpChannel(socket, IDLE_MS);
    const timer = setTimeout(() => channel.close(), HELLO_MS).unref();
    const onHello = () => {
      clearTimeout(timer);
      this.#silent.delete(channel);
    };
    socket.once('data', onHello).once('close', onHello);
    this.#silent.add(channel);
    const [oldest] = this.#silent;
    if (this.#silent.size > MAX_SILENT) oldest?.close();
    const session = this.#serve(channel).finally(() => {
      channel.close();
      this.#sessions.delete(channel);
    });
    this.#sessions.set(channel, session);
  }

  async #serve(channel: TcpChannel): Promise<void> {
    const { options, log } = this;
    const peer = channel.remoteAddress;
    let fields: Fields = { ...this.about, peer };
    const begin = performance.now();
    const listeners = {
      onConnected: ([local]: readonly { readonly qpNum: number }[]) => {
        if (local) fields = { ...fields, qpn: qpnText(local.qpNum) };
        log.info('connected', fields);
      },
      ...{ onInterval() {}, onBandwidth() {}, onLatency() {} },
    };
    let use: DeviceUse | undefined;
    try {
      use = await useDevice(this.device, { local: channel.localAddress });
      const { device } = use;
      const handshake = new Handshake(channel, 'server', TEXT_KEYS);
      const end = { address: peer, port: options.port };
      const result = await runSession(device, handshake, options, end, listeners, new Output(true));
      const { bandwidth = [], latency = [] } = reportOf(device, 'server', options, result);
      log.info('disconnected', {
        ...fields,
        seconds: Math.round(performance.now() - begin) / 1000,
        ...trafficCounts(result.counters),
        ...(bandwidth[0] && { mibPerSecond: Math.round(bandwidth[0].average * 100) / 100 }),
        ...(latency[0] && { typicalUs: Math.round(latency[0].typical * 100) / 100 }),
      });
    } catch (error) {
      if (this.#isClosing) log.info('disconnected', fields);
      else log.error('disconnected', error, fields);
    } finally {
      await use?.close();
    }
  }
}

/** The defaults of the stock program, and what the configuration says. */
function optionsOf({ type, port, size, iters, qps }: PerftestConfig): PerftestOptions {
  const kind = KINDS.find(({ name }) => name === type) as TestKind;
  const count = iters ?? kind.iters;
  return {
    ...{ kind, port, rdmaCm: false, transport: 'RC', qps, size: size ?? kind.size, all: false, iters: count },
    ...{ txDepth: kind.measures === 'lat' ? 1 : Math.min(128, count), rxDepth: Math.min(512, count), postList: 1 },
    ...{ bidirectional: false, immediate: false, atomic: 'FETCH_AND_ADD', trafficClass: 0, timeout: 14, retryCnt: 7 },
    ...{ durationMs: 0, gigabits: false, idleMs: IDLE_MS, spinMs: SPIN_MS, open: {} },
  };
}
