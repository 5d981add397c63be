/** Bringing a queue pair up and down as a connection's messages say. */
import { LIMITS } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import type { AhAttr } from '../verbs/ah.js';
import type { Device } from '../verbs/context.js';
import type { Qp } from '../verbs/qp.js';
import type { DerivedAttributes } from './derive.js';

/** The address of a connection's peer, for a queue pair. @throws VerbsError EADDRNOTAVAIL when our own is gone */
export function ahAttrOf(device: Device, { sgid, ...route }: DerivedAttributes['route']): AhAttr {
  const index = device.gids.findIndex(({ gid }) => gid === sgid);
  if (index < 0) throw new VerbsError('EADDRNOTAVAIL', `${sgid} is no address of ours (any more)`);
  return { grh: { ...route, sgidIndex: index } };
}

/** From RESET or INIT to RTR, where it hears and answers the peer. @throws as `qp.modify` */
export async function bringUp(qp: Qp, { init, rtr, route }: DerivedAttributes, flowControl: boolean): Promise<void> {
  const ahAttr = await qp.device.createAh(ahAttrOf(qp.device, route));
  if (qp.flowControl !== flowControl) qp.flowControl = flowControl;
  await qp.modify(init);
  await qp.modify({ ...rtr, ahAttr });
}

/** From RTR to RTS, where it speaks as well. @throws as `qp.modify` */
export async function letSpeak(qp: Qp, { rts }: DerivedAttributes): Promise<void> {
  // the peer may serve more than we can have outstanding
  const { maxRdAtomic } = rts;
  await qp.modify({
    ...rts,
    ...(maxRdAtomic !== undefined && { maxRdAtomic: Math.min(maxRdAtomic, LIMITS.maxRdAtomic) }),
  });
}

/** To ERR: what is posted completes with WR_FLUSH_ERR. */
export async function bringDown(qp: Qp | undefined): Promise<void> {
  if (!qp?.isAlive || qp.state === 'RESET' || qp.state === 'ERR') return;
  // refused only where it is closed or its device fails meanwhile, and so is down as well
  await qp.modify({ state: 'ERR' }).catch(() => {});
}
