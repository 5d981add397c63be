/** Ends of a connection that no call and no completion shows. */
import type { CmEvent } from '../cm/channel.js';
import type { CmId } from '../cm/cmid.js';
import { VerbsError } from '../errors.js';
import type { Context } from '../verbs/objects/context.js';
import type { Qp } from '../verbs/objects/qp.js';

/** Whether an event tells that the peer or the device has ended a connection. */
export function isDisconnect(
  event: CmEvent,
): event is Extract<CmEvent, { readonly type: 'DISCONNECTED' | 'DEVICE_REMOVAL' }> {
  return event.type === 'DISCONNECTED' || event.type === 'DEVICE_REMOVAL';
}

/** The end of a connection that the peer or the device has ended. */
interface PeerEnd {
  /** The peer's process has ended. */
  readonly hasExited: boolean;
}

/**
 * Resolves when the connection of an id has ended. It takes the events of the id's channel until then.
 * @returns undefined if the id was closed here, not by the peer or the device
 */
export async function untilDisconnected(id: CmId): Promise<PeerEnd | undefined> {
  for await (const event of id.channel)
    if (isDisconnect(event)) return { hasExited: event.type === 'DISCONNECTED' && event.hasExited === true };
  return undefined;
}

/** Asynchronous events after which a queue pair is in ERR (IBTA 11.6.3.2, ibv_get_async_event). */
const FATAL: readonly string[] = ['QP_FATAL', 'QP_ACCESS_ERR', 'QP_REQ_ERR'];

/** Calls `onFailure` when a queue pair fails by itself or by a request of the peer, which may have no completion. */
export function onFatalEvent(qp: Qp, onFailure: (error: VerbsError) => void): void {
  qp.on('event', ({ type }) => {
    if (!FATAL.includes(type)) return;
    const reason = type === 'QP_FATAL' ? `${qp} has failed` : `the peer sent a request that ${qp} does not allow`;
    onFailure(new VerbsError('EIO', `${reason} (${type})`));
  });
}

/** The callers of `onDeviceFailure` by device. */
const watched = new WeakMap<Context, Set<(error: VerbsError) => void>>();

/**
 * Calls `onFailure` when the device has failed. One listener of the device serves all callers: Node.js warns of more
 * than ten.
 * @returns a function that ends it
 */
export function onDeviceFailure(device: Context, onFailure: (error: VerbsError) => void): () => void {
  const callbacks = watched.get(device) ?? watchDevice(device);
  callbacks.add(onFailure);
  return () => void callbacks.delete(onFailure);
}

function watchDevice(device: Context): Set<(error: VerbsError) => void> {
  const callbacks = new Set<(error: VerbsError) => void>();
  watched.set(device, callbacks);
  device.on('event', (event) => {
    if (event.type !== 'DEVICE_FATAL') return;
    for (const onFailure of callbacks) onFailure(new VerbsError('EIO', event.reason));
  });
  return callbacks;
}
