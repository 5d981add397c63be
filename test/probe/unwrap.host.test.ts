// Wireshark finds the same RoCEv2 packets in the same files.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { expect } from 'vitest';
import { readCapture } from '../../src/probe/capture/read.js';
import { decodeCaptured } from '../../src/probe/capture/roce.js';
import { encodeFrame, flowOf, request } from '../../src/probe/packet/packets.js';
import { face, join, packetBlock, section, WRAPPINGS } from '../kit/capturefile.js';
import { testIf } from '../kit/privileges.js';
import { tsharkFields, tsharkPrivilege } from '../kit/tshark.js';

testIf(tsharkPrivilege(), 'Wireshark reads the same PSNs behind every wrapping', async () => {
  const folder = mkdtempSync(joinPath(tmpdir(), 'wasm-roce-unwrap-'));
  try {
    // a label does not say what it carries, and Wireshark wants to be told of pseudowires
    const wrappings = Object.entries(WRAPPINGS).flatMap(([name, each]) => (/pseudowire/.test(name) ? [] : [each]));
    const packets = wrappings.map(({ wrap }, i) =>
      packetBlock(
        wrap(encodeFrame(flowOf(), request.writeOnly({ psn: i + 1, va: 0n, rkey: 1, payload: new Uint8Array(64) }))),
        {
          face: i,
        },
      ),
    );
    const file = joinPath(folder, 'wrappings.pcapng');
    writeFileSync(file, join(section(), ...wrappings.map(({ linkType }) => face(linkType)), ...packets));
    const rows = await tsharkFields(file, ['infiniband.bth.psn', 'infiniband.reth.dmalen']);
    expect(rows.map(([psn, length]) => [Number(psn), Number(length)])).toEqual(
      readCapture(file).packets.map((packet) => {
        const view = decodeCaptured(packet);
        return [view?.bth.psn, view?.reth?.length];
      }),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
