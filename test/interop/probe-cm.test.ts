// Every check of a connection manager against that of Linux, with ucmatose behind it: known deviations, nothing else.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PeerManager } from '../../src/cli/probe/manager.js';
import { LinkTarget } from '../../src/cli/probe/target.js';
import { type Device, openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { decodeRoce } from '../../src/probe/packet/decode.js';
import { describe } from '../../src/probe/packet/describe.js';
import { decodeMad } from '../../src/probe/packet/mad.js';
import { CHECKS, type CheckResult, runChecks, ScriptedLink } from '../../src/probe.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { difference } from './probe-findings.js';

const PORT = 7471;
/**
 * More connections than all checks make, and no messages. It ends itself when a client refuses or gives up, which are
 * intrusive checks.
 */
const UCMATOSE = ['sh', '-c', `while true; do ucmatose -p ${PORT} -c 1000 -C 0; done`];

/** Deviations of Linux from the specification. */
const KNOWN = [
  'deviates: duplicate-req: no answer to a REQ that comes again',
  'deviates: data-implies-rtu: the REP comes again after data',
  'deviates: other-transport: the reason is 28 and 28, not 9',
  'deviates: invalid-mtu: the reason is 28, not 26',
  'deviates: class-port-info: the status is 0xc',
];

/** Checks of a connection manager. */
const MANAGING = CHECKS.filter((check) => 'connects' in check);

/** Returns a packet as text: a message of rdma_cm by its fields. */
function packetText(frame: Uint8Array): string {
  const mad = decodeMad(decodeRoce(frame)?.payload ?? new Uint8Array(0));
  if (mad === undefined) return describe(frame);
  const fields = Object.entries(mad.fields).filter(([, value]) => !(value instanceof Uint8Array));
  return `${mad.name} tid 0x${mad.header.tid.toString(16)} ${fields.map(([name, value]) => `${name} ${value}`).join(' ')}`;
}

describeWithRxe('probe of the connection manager of Linux', 9000, (environment) => {
  let device: Device;
  let target: LinkTarget;
  beforeAll(async () => {
    const link = new ScriptedLink(PacketLink.open({ interface: CARD.interface }));
    device = await openDevice({ link });
    environment.guest.spawn(UCMATOSE);
    await environment.guest.listening(PORT, 'rdma');
    const manager = new PeerManager({ device, link, host: GUEST.ipv4, port: PORT });
    target = new LinkTarget({ device, link, services: [], manager });
  }, 60_000);
  afterAll(async () => {
    await device?.close({ force: true });
  });

  test('rxe’s connection manager has the known deviations, and no others', async () => {
    const results: CheckResult[] = [];
    for await (const result of runChecks(MANAGING, target, { isIntrusive: true })) {
      results.push(result);
      await environment.guest.listening(PORT, 'rdma');
    }
    const others = results.filter(({ verdict }) => verdict !== 'pass');
    const found = others.map(({ name, verdict, text }) => `${verdict}: ${name}: ${text}`);
    const packets = others.flatMap(({ name, evidence }) => [
      name,
      ...evidence.map(({ at, direction, frame }) => `  ${(at / 1e6).toFixed(1)} ${direction} ${packetText(frame)}`),
    ]);
    expect(found, difference(found, KNOWN, packets.join('\n'))).toEqual(KNOWN);
  }, 180_000);
});
