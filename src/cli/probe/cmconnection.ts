/** Connections over rdma_cm whose queue pair a script writes. */
import { lookup } from 'node:dns/promises';
import { type CmId, type ConnectReply, type ConnParam, createCmId } from '../../index.js';
import type { PacketPort } from '../../probe.js';
import type { ScriptedEnd } from './target.js';

/** READs and atomics in flight, which we tell the peer. */
export const DEPTH = 16;
/** The shortest ACK timeout that our requests ask for: the delay of our card's ACKs, code 15, is its lower bound. */
const [ASKED_TIMEOUT, SHORTEST_TIMEOUT] = [13, 15];
/** Time that the peer has to end a connection (ms). */
const CLOSE_MS = 500;

/** Address and port of a service, and the time that it has to answer. */
export interface ServiceEndpoint {
  readonly host: string;
  readonly port: number;
  readonly timeoutMs: number;
}

/** A connection whose server waits for `establish`. */
export interface CmConnection {
  readonly port: PacketPort;
  /** PSN of our first request. */
  readonly psn: number;
  /** PSN of the peer's first request. */
  readonly peerPsn: number;
  /** Code of the ACK timeout that the peer is asked to use. */
  readonly timeout: number;
  /** READs and atomics that the peer serves at a time. */
  readonly initiatorDepth: number;
  /** Whether both ends have agreed to credits. */
  readonly hasFlowControl: boolean;
  /** Tells the peer that it may send. */
  establish(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Connects a script's queue pair to a service.
 * @param param parameters asked of the server: its retries, and credits
 * @throws CmError when nothing is there or it refuses; VerbsError ETIMEDOUT
 */
export async function connectByCm(
  { host, port, timeoutMs }: ServiceEndpoint,
  { device, qpNum, port: portTo }: ScriptedEnd,
  param: Pick<ConnParam, 'retryCnt' | 'rnrRetry' | 'flowControl'> = {},
): Promise<CmConnection> {
  const { address } = await lookup(host);
  const id = createCmId(device, { ackTimeout: ASKED_TIMEOUT });
  try {
    await id.resolveAddr(address, port, { timeout: timeoutMs });
    await id.resolveRoute();
    const all = { qpNum, responderResources: DEPTH, initiatorDepth: DEPTH, ...param };
    const reply = await request(id, all, timeoutMs);
    const { rtr, rts } = reply.attributes;
    return {
      port: await portTo({ address, qpNum: rtr.destQpNum, mtu: rtr.pathMtu }),
      psn: rts.sqPsn,
      peerPsn: rtr.rqPsn,
      timeout: SHORTEST_TIMEOUT,
      initiatorDepth: reply.initiatorDepth,
      hasFlowControl: param.flowControl === true && reply.flowControl,
      establish: () => id.establish(),
      close: () => disconnect(id),
    };
  } catch (error) {
    await id.close();
    throw error;
  }
}

/** Sends a REQ that names our queue pair number, and waits for the REP. @throws CmError; VerbsError ETIMEDOUT */
async function request(id: CmId, param: ConnParam, timeout: number): Promise<ConnectReply> {
  const connecting = id.connect(param, { timeout });
  const reply = async () => {
    for (;;) {
      const event = await id.channel.next({ timeout });
      if (event.type === 'CONNECT_RESPONSE') return event.reply;
    }
  };
  // `establish` settles the promise of `connect`, unless the peer refuses
  const refused = new Promise<never>((_, reject) => connecting.catch(reject));
  return Promise.race([reply(), refused]);
}

/** Disconnects, if the peer has not, and closes. */
async function disconnect(id: CmId): Promise<void> {
  const late = new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref());
  if (id.state === 'ESTABLISHED') await Promise.race([id.disconnect().catch(() => {}), late]);
  await id.close();
}
