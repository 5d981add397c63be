/** The services of a peer that send requests to a script's queue pair. */
import { PingPort, type RequesterOptions, SendingPort, type TrafficRequest } from '../../probe.js';
import type { TrafficOrder } from '../endpoint/traffic.js';
import { encodeRdmaInfo } from '../rping/protocol.js';
import { connectByCm, type ServiceEndpoint } from './cmconnection.js';
import type { RequesterService, ScriptedEnd } from './target.js';

/** Kinds of requests that both services send. */
const OFFERS = ['SEND', 'WRITE', 'READ'] as const;
/** Memory of ours that the peer's requests name. No card has it: the checks answer. */
const REMOTE = { va: 0x6000_0000_0000n, rkey: 0x9abc00, length: 65_536 };

/** The service `traffic` of `wasm-roce endpoint`. */
export function trafficService(there: ServiceEndpoint): RequesterService {
  return {
    start: `wasm-roce endpoint --serve traffic:${there.port}`,
    offers: OFFERS,
    async connect(end, options) {
      const { port, peerPsn, ...served } = await connect(there, end, options);
      const request = ({ opcode, length, count }: TrafficRequest) => {
        const order: TrafficOrder = { opcode, length, count, addr: Number(REMOTE.va), rkey: REMOTE.rkey };
        return port.message(Buffer.from(JSON.stringify(order)));
      };
      return { ...served, port, psn: peerPsn, region: REMOTE, offers: OFFERS, request };
    },
  };
}

/** A server of `rping`: the stock program, or the service of `wasm-roce endpoint`. */
export function rpingService(
  there: ServiceEndpoint,
  /** Bytes of a ping that the server takes. */
  size: number,
): RequesterService {
  return {
    start: `rping -s -P -p ${there.port} -S ${size}`,
    offers: OFFERS,
    async connect(end, options) {
      const { port: inner, peerPsn, ...served } = await connect(there, end, options);
      const port = new PingPort(inner, { psn: peerPsn, region: REMOTE, size, encode: encodeRdmaInfo });
      const request = (messages: TrafficRequest) => port.request(messages);
      const about = { psn: peerPsn, region: REMOTE, offers: OFFERS, isOneByOne: true, background: port };
      return { ...served, ...about, port, request };
    },
  };
}

/** Connects to a service with the retries and credits that a check asks for. */
async function connect(
  there: ServiceEndpoint,
  end: ScriptedEnd,
  { retryCnt = 7, rnrRetry = 7, flowControl = false }: RequesterOptions,
) {
  const connection = await connectByCm(there, end, { retryCnt, rnrRetry, flowControl });
  const { port, psn, peerPsn, timeout, hasFlowControl, establish, close } = connection;
  try {
    await establish();
  } catch (error) {
    await close();
    throw error;
  }
  return { port: new SendingPort(port, psn), peerPsn, timeout, retryCnt, rnrRetry, hasFlowControl, close };
}
