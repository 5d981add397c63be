/**
 * Captures of Linux's host and target of NVMe over RDMA (nvme-rdma, nvmet-rdma): our formats hold for them, and
 * our target answers the same commands with the same statuses.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createTarget, DISCOVERY_NQN, type NvmeTarget } from '../../../src/nvme.js';
import { decode } from '../../../src/probe/packet/packets.js';
import { Status } from '../../../src/protocols/nvme/status.js';
import {
  AdminOpcode,
  COMMAND_BYTES,
  Command,
  decodeResponse,
  encodeCommand,
  encodeConnectRequest,
  encodeResponse,
  FABRICS_OPCODE,
  FabricsType,
  NVME_PORT,
  NvmOpcode,
  RESPONSE_BYTES,
  type Response,
} from '../../../src/protocols/nvme/wire.js';
import { roceFrames } from '../../kit/fixtures.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { MemoryStorage } from './memorystorage.js';
import { RawHost } from './rawhost.js';

const TARGET = '10.77.0.3';
const NQN = 'nqn.2024-01.test:nvme';
const MIB = 2 ** 20;

/** A SEND that has arrived whole. */
interface Capsule {
  readonly from: string;
  /** Queue pair that has received it. */
  readonly qpn: number;
  readonly bytes: Buffer;
}

function capsulesOf(capture: string): Capsule[] {
  const capsules: Capsule[] = [];
  const begun = new Map<string, Buffer[]>();
  for (const { ip, bth, payload } of roceFrames(capture).map(decode)) {
    const { opcode, destQp: qpn } = bth;
    // RC: SEND first, middle, last and only, the latter two with invalidate as well
    const [isFirst, isLast] = [opcode === 0 || opcode === 4 || opcode === 0x17, opcode === 2 || opcode === 0x16];
    if (qpn === 1 || !(isFirst || isLast || opcode === 1)) continue;
    const key = `${ip.dst} ${qpn}`;
    const parts = [...((isFirst ? undefined : begun.get(key)) ?? []), Buffer.from(payload)];
    begun.set(key, parts);
    if (isLast || opcode === 4 || opcode === 0x17) capsules.push({ from: ip.src, qpn, bytes: Buffer.concat(parts) });
  }
  return capsules;
}

const isCommand = ({ from, bytes }: Capsule) => from !== TARGET && bytes.length >= COMMAND_BYTES;
const isResponse = ({ from, bytes }: Capsule) => from === TARGET && bytes.length === RESPONSE_BYTES;
const commandOf = ({ bytes }: Capsule) => new Command(bytes.subarray(0, COMMAND_BYTES));

describe.each(['nvme_connect', 'nvme_discover', 'nvme_rw', 'nvme_aen'])('%s', (capture) => {
  const capsules = capsulesOf(capture);

  test('every command is written as it was read', () => {
    const commands = capsules.filter(isCommand);
    expect(commands.length).toBeGreaterThan(10);
    for (const capsule of commands) {
      const command = commandOf(capsule);
      const { opcode, nsid, cid, data } = command;
      const dwords = Array.from({ length: 6 }, (_, i) => command.dword(10 + i));
      expect(encodeCommand({ opcode, nsid, dwords, data }, cid).toString('hex')).toBe(
        capsule.bytes.toString('hex', 0, COMMAND_BYTES),
      );
    }
  });

  test('every response is written as it was read', () => {
    const responses = capsules.filter(isResponse);
    expect(responses.length).toBeGreaterThan(10);
    for (const { bytes } of responses) {
      const response = decodeResponse(bytes);
      // nvmet says of a failure that the error log has more
      const again = Buffer.from(encodeResponse(response));
      if (response.status !== Status.SUCCESS) again[15] = (again[15] as number) | ((bytes[15] as number) & 0x40);
      expect(again.toString('hex')).toBe(bytes.toString('hex'));
    }
  });
});

/** The differences of our target from nvmet, and their reasons. */
const DIFFERENCES: readonly { why: string; opcode: number; theirs: number; ours: Status; logs?: readonly number[] }[] =
  [
    { why: 'we have Compare', opcode: NvmOpcode.COMPARE, theirs: Status.INVALID_OPCODE, ours: Status.SUCCESS },
    { why: 'as specified', opcode: NvmOpcode.READ, theirs: 0x06, ours: Status.LBA_OUT_OF_RANGE },
    { why: 'as specified', opcode: NvmOpcode.READ, theirs: 0x81, ours: Status.LBA_OUT_OF_RANGE },
    { why: 'tmpfs has none', opcode: NvmOpcode.WRITE_ZEROES, theirs: Status.INVALID_OPCODE, ours: Status.SUCCESS },
    {
      why: 'logs of effects and of asymmetric access, which Identify Controller of ours does not announce',
      ...{
        opcode: AdminOpcode.GET_LOG_PAGE,
        theirs: Status.SUCCESS,
        ours: Status.INVALID_LOG_PAGE,
        logs: [0x05, 0x0c],
      },
    },
  ];

/** The status that our target must have where nvmet has `theirs`. */
function expectedStatus(command: Command, qid: number, theirs: number): number {
  const difference = DIFFERENCES.find(
    ({ opcode, theirs: status, logs }) =>
      opcode === command.opcode &&
      status === theirs &&
      (logs === undefined || (qid === 0 && logs.includes(command.dword(10) & 0xff))),
  );
  return difference?.ours ?? theirs;
}

describe('our target in the place of nvmet', () => {
  useDevices();
  let target: NvmeTarget;
  const hosts: RawHost[] = [];

  beforeEach(async () => {
    const namespaces = [
      { storage: new MemoryStorage(64 * MIB) },
      { storage: new MemoryStorage(64 * MIB), blockBytes: 4096 },
    ];
    target = await createTarget({ device: peer, subsystems: [{ nqn: NQN, namespaces }] });
  });
  afterEach(async () => {
    for (const host of hosts.splice(0)) await host.close();
    await target.close();
  });

  test.each(['nvme_connect', 'nvme_discover', 'nvme_rw'])(
    '%s: the same commands, the same statuses',
    async (capture) => {
      const capsules = capsulesOf(capture);
      const nqn = capture === 'nvme_discover' ? DISCOVERY_NQN : NQN;
      const queues = new Map<number, { host: RawHost; qid: number }>();
      let cntlid = 0xffff;
      const found: string[] = [];
      const expected: string[] = [];
      for (const [i, capsule] of capsules.entries()) {
        if (!isCommand(capsule)) continue;
        const command = commandOf(capsule);
        const isConnect = command.opcode === FABRICS_OPCODE && command.fabricsType === FabricsType.CONNECT;
        if (isConnect) {
          const [qid, size] = [command.u16(42), command.u16(44)];
          const host = await RawHost.connect(device, HOST, NVME_PORT, encodeConnectRequest(qid, size + 1, 0));
          hosts.push(host);
          queues.set(capsule.qpn, { host, qid });
          const { status, result } = await host.ask(host.connectCommand(nqn, qid, cntlid, size, command.dword(12)));
          expect(status).toBe(Status.SUCCESS);
          if (qid === 0) cntlid = Number(result & 0xffffn);
          continue;
        }
        const theirs = responseTo(command, capsules.slice(i));
        const queue = queues.get(capsule.qpn);
        // an Async Event Request has no response yet
        if (queue === undefined || theirs === undefined) continue;
        const ours = await queue.host.ask(withOurMemory(capsule.bytes, queue.host));
        const what = `${found.length}: opcode ${command.opcode}, nsid ${command.nsid}, dword 10 ${command.dword(10)}`;
        found.push(`${what}: ${Status[ours.status]}`);
        expected.push(`${what}: ${Status[expectedStatus(command, queue.qid, theirs.status)]}`);
      }
      expect(found).toEqual(expected);
      expect(found.length).toBeGreaterThan(10);
    },
  );
});

/** The target's next response with the id of the command. */
function responseTo({ cid }: Command, later: readonly Capsule[]): Response | undefined {
  return later
    .filter(isResponse)
    .map(({ bytes }) => decodeResponse(bytes))
    .find((response) => response.cid === cid);
}

/** The capsule, whose data is in memory of a host of ours. */
function withOurMemory(bytes: Buffer, host: RawHost): Buffer {
  const capsule = Buffer.from(bytes);
  const { data, opcode, fabricsType } = new Command(capsule.subarray(0, COMMAND_BYTES));
  // nvmet offers all command sets, which the host then selects (CC.CSS); ours has one
  if (opcode === FABRICS_OPCODE && fabricsType === FabricsType.PROPERTY_SET)
    capsule[48] = (capsule[48] as number) & ~0x70;
  if (data.place === 'capsule' || data.length === 0) return capsule;
  capsule.writeBigUInt64LE(host.address, 24);
  capsule.writeUInt32LE(host.memory.rkey, 35);
  capsule[39] = 0x40;
  return capsule;
}
