/**
 * A REQ as a Linux host with a ConnectX sends it. It differs from that of a host with rxe in its depths and times, and
 * in the fields for enhanced connection establishment (ECE), which other hosts leave reserved.
 */
import { expect, test } from 'vitest';
import { ACCEPT, Conversation } from './conversation.js';
import * as mads from './mads.js';

const MLX5: Partial<mads.ReqFields> = {
  qpn: 0x144,
  resources: 16,
  depth: 16,
  remoteTimeout: 22,
  localTimeout: 22,
  psn: 0xcf7bf6,
  retries: 7,
  rnr: 7,
  cmRetries: 15,
  flow: 0x5ba59,
  ackTimeout: 18,
};
/** Mellanox' vendor id, in the reserved bytes before the service id. */
const VENDOR = 0x15b3;

function reqWithEce(attributeModifier: number): Uint8Array {
  const bytes = mads.req(MLX5);
  const view = new DataView(bytes.buffer);
  view.setUint32(20, attributeModifier);
  view.setUint32(24 + 4, VENDOR);
  return bytes;
}

test.each([0, 1, 0x0003_0001])(
  'a REQ of an mlx5 adapter with ECE options %i gives the same request as one without',
  (options) => {
    const talk = new Conversation();
    talk.receive(reqWithEce(options));
    const { id, request } = talk.event('CONNECT_REQUEST');
    talk.id = id;
    expect(request).toMatchObject({
      qpNum: 0x144,
      responderResources: 16,
      initiatorDepth: 16,
      retryCnt: 7,
      rnrRetry: 7,
      flowControl: false,
      srq: false,
      pathMtu: 1024,
    });
    // a server that accepts with the parameters of the request
    const { responderResources, initiatorDepth } = request;
    const { rtr, rts } = talk.core.prepareAccept(id, { ...ACCEPT, responderResources, initiatorDepth });
    expect(rtr).toMatchObject({ destQpNum: 0x144, rqPsn: ACCEPT.startingPsn, maxDestRdAtomic: 16 });
    expect(rts).toMatchObject({ sqPsn: 0xcf7bf6, maxRdAtomic: 16, timeout: 18, retryCnt: 7, rnrRetry: 7 });
    talk.accept({ responderResources, initiatorDepth });
    expect(talk.sentOne('REP')).toMatchObject({ responderResources: 16, initiatorDepth: 16 });
    talk.receive(mads.rtu(talk.ids));
    talk.event('ESTABLISHED');
  },
);

test('a REQ that the host sends again is no second request', () => {
  const talk = new Conversation();
  talk.receive(reqWithEce(0));
  talk.id = talk.event('CONNECT_REQUEST').id;
  talk.receive(reqWithEce(0));
  expect(talk.sentOne('MRA')).toMatchObject({ localCommId: talk.id });
  expect(talk.events()).toEqual([]);
});
