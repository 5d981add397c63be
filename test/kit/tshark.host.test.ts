// The second decoder, held against tshark.
import { expect, test } from 'vitest';
import { decode } from '../../src/probe/packet/packets.js';
import { capturePath, roceFrames } from './fixtures.js';
import { describeIf } from './privileges.js';
import { tsharkFields, tsharkMalformed, tsharkPrivilege } from './tshark.js';

describeIf(tsharkPrivilege(), 'tshark agrees about captures', () => {
  test('about opcodes and PSNs', async () => {
    const file = capturePath('rxt_ops');
    const rows = await tsharkFields(file, ['infiniband.bth.opcode', 'infiniband.bth.psn'], 'infiniband');
    const ours = roceFrames('rxt_ops').map(decode);
    expect(rows.map(([opcode, psn]) => [Number(opcode), Number(psn)])).toEqual(
      ours.map((d) => [d.bth.opcode, d.bth.psn]),
    );
  });

  test('that nothing in them is malformed', { timeout: 60_000 }, async () => {
    for (const name of ['rxt_ops', 'rxt_ops_v6', 'ib_read_bw_R_8192', 'rxt_zero'])
      expect(await tsharkMalformed(capturePath(name)), name).toEqual([]);
  });
});
