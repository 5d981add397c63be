/** The services of a peer that a probe uses: the regions of an endpoint over rdma_cm, a server of perftest over TCP. */

import { setTimeout as sleep } from 'node:timers/promises';
import { RNR_TIMER } from '../../base/rnrtimer.js';
import type { Device } from '../../index.js';
import { type PeerRegion, ReceivingPort } from '../../probe.js';
import type { RegionInfo } from '../endpoint/regions.js';
import { errorReport, failure } from '../exit.js';
import { Handshake } from '../perftest/communication/handshake.js';
import { TEXT_KEYS } from '../perftest/communication/keys.js';
import { regionsIn } from '../region/transfer.js';
import { RPING_PORT } from '../rping/protocol.js';
import { TcpChannel } from '../tcpchannel.js';
import { connectByCm, DEPTH, type ServiceEndpoint } from './cmconnection.js';
import type { Candidate } from './discovery.js';
import { rpingService, trafficService } from './requesters.js';
import type { PeerService } from './target.js';

/** Bytes that a check needs, and the alignment of their address. */
const [REGION_BYTES, PAGE] = [16384, 4096];
/** Receives of a connection of an endpoint, and the bytes of each: the defaults of `device.listen`. */
const [RECEIVES, RECEIVE_BYTES] = [32, 16384];
/** Bytes of memory that a server of perftest has for us by default; for atomics it has one page. */
const PERFTEST_BYTES = 65_536;
/** Receives that it posts by default, if it takes SENDs. */
const PERFTEST_RECEIVES = 512;
/** Time between two attempts to reach a server that starts again (ms). */
const AGAIN_MS = 50;
/** Time for which a server may be away at first: the attempt of discovery ends one that serves one client (ms). */
const START_MS = 500;

/** The service `regions` of `wasm-roce endpoint`. */
export function regionsService({ host, port, timeoutMs }: ServiceEndpoint): PeerService {
  return {
    start: `wasm-roce endpoint --serve regions:${port} --region probe=64k`,
    hasReceives: true,
    choosesPsn: false,
    async connect(end) {
      const connection = await connectByCm({ host, port, timeoutMs }, end);
      const { port: inner, psn, peerPsn, initiatorDepth, hasFlowControl, establish, close } = connection;
      try {
        const messages = new ReceivingPort(inner, peerPsn);
        await establish();
        const list = await messages.message(messages.now() + timeoutMs * 1e6);
        if (list === undefined) throw failure(`${host} port ${port} sent no list of regions in ${timeoutMs} ms`);
        const regions = regionsIn(Buffer.from(list), host, port);
        const region = regions.find((one) => permits(one, ['remoteRead', 'remoteWrite', 'remoteAtomic']));
        const readOnly = regions.find(({ access, length }) => `${access}` === 'remoteRead' && length >= PAGE);
        return {
          port: messages,
          psn,
          ...(region && { region: peerRegion(region) }),
          ...(readOnly && { readOnly: peerRegion(readOnly) }),
          receives: RECEIVES,
          receiveBytes: RECEIVE_BYTES,
          resources: initiatorDepth,
          hasFlowControl,
          close,
        };
      } catch (error) {
        await close();
        throw error;
      }
    },
  };
}

/**
 * A server of perftest: `write-bw` of ours, or a stock program, whose queue pairs permit one operation each. It does
 * not tell which it is. A stock program serves one client and ends, so that it has to run in a loop.
 */
export function perftestService({ host, port, timeoutMs }: ServiceEndpoint): PeerService {
  let last: TcpChannel | undefined;
  return {
    start: `wasm-roce endpoint --serve write-bw:${port}`,
    hasReceives: false,
    choosesPsn: true,
    choosesMtu: true,
    needsTrial: true,
    async connect({ device, qpNum, psn, mtu: most, port: portTo }) {
      const channel = await connectAgain({ host, port, timeoutMs }, last);
      try {
        const handshake = new Handshake(channel, 'client', TEXT_KEYS);
        const { mtu } = await handshake.negotiate(most ?? device.queryPort().activeMtu);
        const gid = device.chooseGid(channel.remoteAddress).gid;
        const mine = { outReads: DEPTH, qpNum, psn, rkey: 0, vaddr: 0n, gid };
        const theirs = await handshake.exchangeKeys(() => mine);
        // the server answers a second time when its queue pair is connected; one that takes SENDs posts its receives
        // after the third, and waits for another one
        for (let i = 0; i < 2; i++) await handshake.exchangeKeys(() => mine);
        last = channel;
        const inner = await portTo({ address: theirs.gid, qpNum: theirs.qpNum, mtu });
        const va = (theirs.vaddr + BigInt(PAGE - 1)) & ~BigInt(PAGE - 1);
        const length = PERFTEST_BYTES - Number(va - theirs.vaddr);
        return {
          port: inner,
          psn,
          region: { va, rkey: theirs.rkey, length, isLonger: true },
          receives: PERFTEST_RECEIVES,
          receiveBytes: PERFTEST_BYTES,
          rnrTimer: RNR_TIMER,
          close: async () => channel.close(),
        };
      } catch (error) {
        channel.close();
        throw error;
      }
    },
  };
}

/**
 * Connects to a server that may be about to start again.
 * @param last the connection before, if there was one: a server that refuses the next one has to lose it first
 */
async function connectAgain({ timeoutMs, ...there }: ServiceEndpoint, last?: TcpChannel): Promise<TcpChannel> {
  const until = performance.now() + (last ? timeoutMs : START_MS);
  for (;;)
    try {
      return await TcpChannel.connect(there, timeoutMs);
    } catch (error) {
      if (errorReport(error).code !== 'ECONNREFUSED' || performance.now() >= until) throw error;
      last?.close();
      await sleep(AGAIN_MS);
    }
}

const permits = ({ access, length }: RegionInfo, rights: readonly string[]) =>
  length >= REGION_BYTES && rights.every((right) => (access as readonly string[]).includes(right));

const peerRegion = ({ addr, rkey, length }: RegionInfo): PeerRegion => ({ va: BigInt(addr), rkey, length });

/** Ports of services that the user has named. */
export interface ToldPorts {
  readonly regions?: number;
  readonly traffic?: number;
  readonly perftest?: readonly number[];
  readonly rping?: number;
}

/** The servers that may run on a peer, at their usual ports; those first that permit the most checks. */
export function candidatesOf(
  host: string,
  timeoutMs: number,
  /** Bytes of a ping that a server of rping takes. */
  rpingSize: number,
  told: ToldPorts = {},
): readonly Candidate[] {
  const at = (service: Service, port: number | undefined, serve: (at: ServiceEndpoint) => Use): Candidate => {
    const used = port ?? service.port;
    return {
      ...service,
      port: used,
      ...serve({ host, port: used, timeoutMs }),
      ...(port !== undefined && { isTold: true }),
    };
  };
  return [
    at({ name: 'regions', over: 'rdma_cm', port: 7472 }, told.regions, (to) => ({ service: regionsService(to) })),
    at({ name: 'traffic', over: 'rdma_cm', port: 7473 }, told.traffic, (to) => ({ requester: trafficService(to) })),
    ...(told.perftest ?? [undefined]).map((port) =>
      at({ name: 'perftest', over: 'TCP', port: 18515 }, port, (to) => ({ service: perftestService(to) })),
    ),
    at({ name: 'rping', over: 'rdma_cm', port: RPING_PORT }, told.rping, (to) => ({
      requester: rpingService(to, rpingSize),
    })),
    { name: 'perftest -R', over: 'rdma_cm', port: 18515 },
    { name: 'ucmatose', over: 'rdma_cm', port: 7471 },
  ];
}

type Service = Pick<Candidate, 'name' | 'over' | 'port'>;
type Use = Pick<Candidate, 'service' | 'requester'>;

/** Requirements on the device, so that packets leave as they are written. */
export const canScript = (device: Device) => device.query().link.kind !== 'udp';
