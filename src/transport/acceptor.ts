/** The passive end of a protocol: a listener of rdma_cm, and its requests. */
import { Scope } from '../base/scope.js';
import { type CmId, type CmIdOptions, createCmId } from '../cm/cmid.js';
import { lookupHost } from '../link/peer.js';
import type { Context } from '../verbs/objects/context.js';

/** The address that a service listens on. */
export interface ListenAddress {
  /** A name or address of the device, `0.0.0.0` or `::`. Default `::`: all of its addresses. */
  readonly host?: string | undefined;
  /** Port of rdma_cm's TCP port space; 0 for any. */
  readonly port: number;
  /** Requests that may wait to be accepted. Default: as `id.listen`. */
  readonly backlog?: number;
}

/** Listens. @throws as `lookupHost`, `id.bindAddr` and `id.listen`; nothing is left open then */
export function listen(device: Context, at: ListenAddress, options?: CmIdOptions): Promise<CmId> {
  const { host = '::', port, backlog } = at;
  return Scope.open(async (scope) => {
    const id = scope.add(createCmId(device, options));
    await id.bindAddr(await lookupHost(host), port);
    await id.listen(backlog === undefined ? {} : { backlog });
    return id;
  });
}

/**
 * Passes the requests of a listener on until the listener is closed. Each is served beside the others: its rejection
 * is a bug.
 * @param onFailure called when the device has failed: no request will come
 */
export async function acceptAll(
  listener: CmId,
  accept: (request: CmId) => Promise<void>,
  onFailure: (error: Error) => void,
): Promise<void> {
  for await (const event of listener.channel) {
    if (event.type === 'CONNECT_REQUEST') void accept(event.id);
    else if (event.type === 'DEVICE_REMOVAL') onFailure(event.error);
  }
}

/** Refuses a request, which its client may have given up. */
export async function refuse(request: CmId, options: Parameters<CmId['reject']>[0]): Promise<void> {
  await request.reject(options).catch(() => {});
  await request.close();
}
