// wasm-roce ladder: its output and its errors.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ack, encodeFrame, flowOf, request, reverse } from '../../src/probe/packet/packets.js';
import { pcapFile } from '../kit/capturefile.js';
import { run } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-ladder-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, bytes: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

/** Two connections, a packet each microsecond: in the second a PSN is sent again. */
const quiet = flowOf({ destQp: 0x11, srcQp: 0x22 });
const troubled = flowOf({ destQp: 0x33, srcQp: 0x44 });
const packets = [
  encodeFrame(quiet, request.sendOnly({ psn: 7, ackReq: true })),
  encodeFrame(reverse(quiet), ack({ psn: 7, msn: 1 })),
  encodeFrame(troubled, request.sendOnly({ psn: 9, ackReq: true })),
  encodeFrame(troubled, request.sendOnly({ psn: 9, ackReq: true })),
  encodeFrame(reverse(troubled), ack({ psn: 9, msn: 1 })),
];
const capture = file('capture.pcap', pcapFile(packets));
const page = join(folder, 'capture.html');

test('connections are printed in the order of their troubles', async () => {
  const { status, stdout, stderr } = await run(['ladder', capture]);
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toBe(`${page}: 5 packets of 2 connections, 1 with trouble
  10.0.0.2 qp 68 – 10.0.0.1 qp 51: 3 packets, 1 with trouble
  10.0.0.2 qp 34 – 10.0.0.1 qp 17: 2 packets, 0 with trouble
`);
  expect(readFileSync(page, 'utf8')).toContain('<html');
});

test('--json prints every finding', async () => {
  const { stdout } = await run(['ladder', capture, '--json', '--qp', '0x33', '--from', '0.000003']);
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ page, packets: 2, skipped: 0, troubles: 1, remarks: [] },
    connections: [
      {
        ...{ addresses: ['10.0.0.2', '10.0.0.1'], qps: [0x44, 0x33], packets: 2, troubles: 1 },
        pairing: { by: 'order', fits: 1, of: 1 },
        about: '1 of 1 responses follow a request with their PSN: the pairing is clear.',
        findings: [{ number: 4, psn: 9, marks: ['retransmission'], label: 'SEND_ONLY, psn 9, ackreq' }],
      },
    ],
  });
});

test('a file that ends in the middle of a packet is shown up to that packet, with a remark on standard error', async () => {
  const whole = readFileSync(capture);
  const { status, stdout, stderr } = await run(['ladder', file('cut.pcap', whole.subarray(0, whole.length - 3))]);
  expect(status).toBe(0);
  expect(stdout).toContain('4 packets of 2 connections');
  expect(stderr).toMatch(
    /cut\.pcap: The file ends in the middle of a packet at offset \d+: its last \d+ bytes are left out\.\n$/,
  );
});

const foreign = { linkType: 127 };
const CASES: [string, string, readonly string[], number, string][] = [
  ['an empty file', file('empty.pcap', new Uint8Array(0)), [], 1, 'cannot be read: the file is empty'],
  [
    'no capture',
    file('text.pcap', Buffer.from('# a text')),
    [],
    1,
    'starts with 0x23206120, which is neither pcap nor pcapng',
  ],
  [
    'no packets of RoCEv2',
    file('none.pcap', pcapFile([new Uint8Array(60)])),
    [],
    1,
    'has no RoCEv2 packets; 1 packets are others',
  ],
  [
    'a foreign link type',
    file('wifi.pcap', pcapFile(packets, foreign)),
    [],
    1,
    '5 packets have link type 127, must be one of Ethernet (1)',
  ],
  ['an absent file', join(folder, 'absent.pcap'), [], 1, 'absent.pcap cannot be read: ENOENT'],
  [
    'an unknown queue pair',
    capture,
    ['--qp', '99'],
    1,
    'none of the 5 RoCEv2 packets is what --qp, --from and --to ask for',
  ],
  ['an order of times', capture, ['--from', '2', '--to', '1'], 2, '--from 2 must not be after --to 1'],
  ['a negative time', capture, ['--from', '-1'], 2, 'It must be a number from 0 to 1000000000.'],
];

test.each(CASES)('ladder refuses %s', async (_name, path, words, code, message) => {
  const output = join(folder, 'refused.html');
  const { status, stderr } = await run(['ladder', path, '-o', output, ...words]);
  expect(stderr).toContain(message);
  expect(status).toBe(code);
  expect(existsSync(output)).toBe(false);
});
