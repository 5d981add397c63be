/** Finds what a peer offers: tries the usual ports, and leaves no connection behind. */
import { lookup } from 'node:dns/promises';
import { CmError, type CmId, type Cq, createCmId, type Device, type Pd } from '../../index.js';
import { errorReport } from '../exit.js';
import { TcpChannel } from '../tcpchannel.js';
import type { PeerService, RequesterService } from './target.js';

/** A server that may run on a peer. */
export interface Candidate {
  /** The program, or the service of an endpoint. */
  readonly name: string;
  /** The way in which clients reach it. */
  readonly over: 'rdma_cm' | 'TCP';
  readonly port: number;
  /** Its use by checks. Without either, no check uses it. */
  readonly service?: PeerService;
  readonly requester?: RequesterService;
  /** Whether the user has said that it is there. */
  readonly isTold?: boolean;
}

/** The result for a candidate. */
export interface Discovery {
  readonly candidate: Candidate;
  /** Absent: it is there. */
  readonly why?: string;
}

/** Addresses to look at, and the time for that. */
export interface DiscoveryOptions {
  readonly device: Device;
  readonly host: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Tries all candidates at once, and gives what became of them in their order. Those that were told are not tried. */
export async function* discover(
  candidates: readonly Candidate[],
  options: DiscoveryOptions,
): AsyncGenerator<Discovery> {
  const { device } = options;
  const unknown = candidates.filter(({ isTold }) => !isTold);
  if (unknown.length === 0) return;
  const resources = { pd: await device.allocPd(), cq: await device.createCq({ cqe: 1 }) };
  const attempts = unknown.map(async (candidate): Promise<Discovery> => {
    try {
      await (candidate.over === 'TCP' ? tryTcp : tryCm)(candidate.port, options, resources);
      return { candidate };
    } catch (error) {
      return { candidate, why: errorReport(error).message };
    }
  });
  try {
    for (const attempt of attempts) yield await attempt;
  } finally {
    await Promise.all(attempts);
    await resources.cq.close();
    await resources.pd.close();
  }
}

/** Returns the line that says what became of a candidate. */
export function discoveryText({ candidate: { name, over, port, service, requester }, why }: Discovery): string {
  const place = `${name} (${over} port ${port})`;
  if (why !== undefined) return `not there: ${place}: ${why}`;
  return `found: ${place}${service === undefined && requester === undefined ? '; no check uses it' : ''}`;
}

/** Connects and closes. @throws CliError when nobody listens */
async function tryTcp(port: number, { host, timeoutMs }: DiscoveryOptions): Promise<void> {
  const channel = await TcpChannel.connect({ host, port }, timeoutMs);
  channel.close();
}

/**
 * Connects and disconnects. The REQ names a queue pair number of ours that no packet comes from. A REP that is rejected
 * would be shorter, but is an error to a server: rping ends by it, even where it is to serve many clients.
 * @throws CmError when nobody listens; VerbsError when nobody answers
 */
async function tryCm(
  port: number,
  { device, host, timeoutMs, signal }: DiscoveryOptions,
  { pd, cq }: { readonly pd: Pd; readonly cq: Cq },
): Promise<void> {
  const { address } = await lookup(host);
  const qp = await pd.createQp({ sendCq: cq, maxSendWr: 1, maxRecvWr: 1 });
  const id = createCmId(device);
  try {
    const wait = { timeout: timeoutMs, ...(signal && { signal }) };
    await id.resolveAddr(address, port, wait);
    await id.resolveRoute();
    await replyTo(id, id.connect({ qpNum: qp.qpNum, responderResources: 1, initiatorDepth: 1 }, wait), wait);
    await id.establish();
    await id.disconnect({}, wait).catch(() => {});
  } catch (error) {
    // who refuses for another reason than that nobody listens is there, and tells why when it is used
    const isThere = error instanceof CmError && error.event === 'REJECTED' && error.reason !== 'INVALID_SERVICE_ID';
    if (!isThere) throw error;
  } finally {
    await id.close();
    await qp.close();
  }
}

/** Waits for the REP. @throws CmError, VerbsError when there is none */
function replyTo(id: CmId, connecting: Promise<unknown>, wait: { timeout: number; signal?: AbortSignal }) {
  const reply = async () => {
    while ((await id.channel.next(wait)).type !== 'CONNECT_RESPONSE');
  };
  return Promise.race([reply(), connecting]);
}
