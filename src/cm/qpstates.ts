/** State transitions of a connection's queue pair. */
import { VerbsError } from '../errors.js';
import type { AhAttr } from '../verbs/address/resolvedaddress.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { DerivedAttributes } from './core/derive.js';

/**
 * Returns the address attribute of a connection's peer.
 * @throws VerbsError EADDRNOTAVAIL when the device no longer has our GID
 */
export function ahAttrOf(
  device: DeviceBase,
  { route: { sgid, ...route }, sl }: Pick<DerivedAttributes, 'route' | 'sl'>,
): AhAttr {
  const index = device.gids.findIndex(({ gid }) => gid === sgid);
  if (index < 0) throw new VerbsError('EADDRNOTAVAIL', `${sgid} is not (or no longer) an address of ${device}`);
  return { grh: { sgidIndex: index, ...route }, sl };
}

/** Takes the queue pair from RESET or INIT to RTR: it receives, but does not send. @throws as `qp.modify` */
export async function toRtr(qp: Qp, attributes: DerivedAttributes, flowControl: boolean): Promise<void> {
  const { init, rtr } = attributes;
  const ahAttr = await qp.device.resolveAddress(ahAttrOf(qp.device, attributes));
  if (qp.flowControl !== flowControl) qp.flowControl = flowControl;
  if (qp.state === 'RESET') await qp.modify(init);
  const { pkeyIndex, qpAccessFlags } = init;
  await qp.modify({ ahAttr, pkeyIndex, qpAccessFlags, ...rtr });
}

/**
 * Takes the queue pair from RTR to RTS: it also sends. One that the peer has brought to ERR meanwhile is connected all
 * the same, as in Linux: its completions and events tell what was wrong.
 * @throws as `qp.modify`
 */
export async function toRts(qp: Qp, { rts }: DerivedAttributes): Promise<void> {
  try {
    await qp.modify(rts);
  } catch (error) {
    if (!qp.isAlive || qp.state !== 'ERR') throw error;
  }
}

/** Takes the queue pair to ERR: posted work requests complete with WR_FLUSH_ERR. */
export async function toError(qp: Qp | undefined): Promise<void> {
  if (!qp?.isAlive) return;
  const { state } = qp;
  if (state === 'RESET' || state === 'ERR') return;
  // Fails only when the queue pair is closed or its device fails meanwhile, which ends the connection too.
  await qp.modify({ state: 'ERR' }).catch(() => {});
}
