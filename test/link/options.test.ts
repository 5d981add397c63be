// The card defines the option bits of ring descriptors. Links and addon cannot import them, so they declare them, too.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import * as link from '../../src/link/frames.js';
import { Rig } from '../kit/rig.js';

/** Integer constants of the addon's header, by name. */
function constants(): Record<string, number> {
  const text = readFileSync(new URL('../../native/core/frames.h', import.meta.url), 'utf8');
  const found = text.matchAll(/^constexpr uint32_t (k\w+) = (0x[\da-f]+|\d+);$/gim);
  return Object.fromEntries(Array.from(found, ([, name, value]) => [name, Number(value)]));
}

test('the card, the links and the addon have the same option bits', async () => {
  const { RxOption, TxOption, RX_SEGMENT_SHIFT, TX_ICRC_SHIFT } = (await Rig.create()).x;
  const card = {
    kTxContinuesBurst: TxOption.CONTINUES_BURST,
    kTxFetchSpan: TxOption.FETCH_SPAN,
    kTxIcrcShift: TX_ICRC_SHIFT.value,
    kRxIcrcFolded: RxOption.ICRC_FOLDED,
    kRxIpIdUnknown: RxOption.IP_ID_UNKNOWN,
    kRxSegmentShift: RX_SEGMENT_SHIFT.value,
  };
  expect(constants()).toMatchObject(card);
  expect({
    kTxContinuesBurst: link.TX_CONTINUES_BURST,
    kTxFetchSpan: link.TX_FETCH_SPAN,
    kTxIcrcShift: link.TX_ICRC_SHIFT,
    kRxIcrcFolded: link.RX_ICRC_FOLDED,
    kRxIpIdUnknown: link.RX_IP_ID_UNKNOWN,
    kRxSegmentShift: link.RX_SEGMENT_SHIFT,
  }).toEqual(card);
});
