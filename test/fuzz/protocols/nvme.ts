/** NVMe: capsules of a host, and responses of a target. */
import { connect, createTarget, type NvmeController } from '../../../src/nvme.js';
import {
  ADMIN_ENTRIES,
  AdminOpcode,
  COMMAND_BYTES,
  encodeConnectData,
  FABRICS_OPCODE,
  NVME_PORT,
  NvmOpcode,
  RESPONSE_BYTES,
} from '../../../src/protocols/nvme/wire.js';
import type { Random } from '../../kit/random.js';
import { MemoryStorage } from '../../protocols/nvme/memorystorage.js';
import { NQN, PROTOCOLS } from '../../protocols/protocols.js';
import { edge, edge64, Fields } from './edges.js';
import { type FuzzedProtocol, HOSTILE_HOST, talkAsClient } from './protocol.js';
import { asClient, asService } from './rawend.js';
import { Act, type PartialStep } from './step.js';

const OPCODES = [AdminOpcode, NvmOpcode].flatMap((names) =>
  Object.values(names).filter((value): value is number => typeof value === 'number'),
);
const CONNECT_DATA = encodeConnectData({
  hostId: Buffer.alloc(16, 5),
  cntlid: 0xffff,
  subsystemNqn: NQN,
  hostNqn: 'nqn.2026-01.com.example:fuzz',
});

function command(random: Random, address: bigint, rkey: number): PartialStep {
  const fields = new Fields(COMMAND_BYTES, 'LE');
  const isFabrics = random.chance(0.5);
  // half of all connections begin with Connect, whose data is behind the command in memory that the target may read
  const type = random.pick([0, 1, 4]);
  fields.put(1, isFabrics ? FABRICS_OPCODE : random.pick(OPCODES)).put(1, random.chance(0.9) ? 0x40 : edge(random));
  fields.put(2, random.below(40)).put(4, isFabrics ? type : edge(random));
  const isData = random.chance(0.6);
  fields.at(24).put64(isData ? edge64(random, address) : 0n);
  if (random.chance(0.2)) fields.put(4, edge(random, 512)).at(39).put(1, 0x01);
  else
    fields
      .put(3, isData ? edge(random, random.pick([512, 1024, 4096])) : 0)
      .put(4, edge(random, rkey))
      .put(1, 0x40);
  fields.at(40);
  if (isFabrics && type === 1 && random.chance(0.7)) fields.put(2, 0).put(2, random.below(3)).put(2, 31).put(2, 0);
  else if (isFabrics && type === 0)
    fields
      .put(4, 0)
      .put(4, 0x14)
      .put(4, random.chance(0.7) ? 0x46_0001 : edge(random));
  else for (let n = 0; n < 6; n++) fields.put(4, random.chance(0.5) ? random.below(8) : edge(random, 0));
  const capsule = random.chance(0.3) ? Buffer.concat([fields.bytes, random.bytes(random.below(1024))]) : fields.bytes;
  return { act: Act.SEND, payload: random.chance(0.97) ? capsule : capsule.subarray(random.below(COMMAND_BYTES)) };
}

const connectRequest = (random?: Random) => {
  const number = (right: number) => (random?.chance(0.2) ? edge(random, right) : right);
  const fields = new Fields(32, 'LE').put(2, number(0)).put(2, number(random?.below(3) ?? 0));
  return fields
    .put(2, number(ADMIN_ENTRIES))
    .put(2, number(ADMIN_ENTRIES - 1))
    .put(2, number(0)).bytes;
};

export const nvmeTarget: FuzzedProtocol = {
  name: 'nvme',
  about: 'a host of NVMe, whose capsules have integers at their edges',
  privateData: connectRequest,
  message: (random, address, rkey) =>
    random.chance(0.05) ? { act: Act.SEND, payload: CONNECT_DATA } : command(random, address, rkey),
  async open(ends) {
    const storage = new MemoryStorage(2 ** 20);
    const target = await createTarget({ device: ends.peer, subsystems: [{ nqn: NQN, namespaces: [{ storage }] }] });
    const close = () => target.close();
    return { meet: asClient('10.0.0.2', NVME_PORT), talk: () => PROTOCOLS.nvme.talk(ends), close };
  },
};

export const nvmeHost: FuzzedProtocol = {
  name: 'nvme-host',
  about: 'a target of NVMe, whose responses and data have integers at their edges',
  privateData(random) {
    const number = (right: number) => (random?.chance(0.2) ? edge(random, right) : right);
    return new Fields(32, 'LE').put(2, number(0)).put(2, number(ADMIN_ENTRIES)).bytes;
  },
  message(random) {
    if (random.chance(0.3)) return { act: Act.WRITE, addr: edge64(random), payload: random.bytes(random.below(4096)) };
    const fields = new Fields(RESPONSE_BYTES, 'LE');
    fields.put64(random.chance(0.5) ? edge64(random, 1n) : BigInt(random.pick([1, 0x7f_0100_007f, 0x20_0f01_007f])));
    fields
      .put(2, random.below(32))
      .put(2, 0)
      .put(2, random.chance(0.8) ? 0 : edge(random));
    fields.put(2, random.chance(0.8) ? 0 : edge(random));
    return { act: Act.SEND, payload: random.chance(0.97) ? fields.bytes : fields.bytes.subarray(1) };
  },
  /** The place for the data of its first command with data. */
  learn(end) {
    for (let n = 0; n < 4; n++) {
      const bytes = end.received(n);
      if (bytes[0] !== 0 && bytes.readUInt32LE(35) !== 0)
        end.target = { addr: bytes.readBigUInt64LE(24), rkey: bytes.readUInt32LE(35) };
    }
  },
  async open({ device, peer }, hostile) {
    let connecting: Promise<NvmeController | undefined> = Promise.resolve(undefined);
    const close = async () => {
      await (await connecting)?.close();
    };
    const invite = () => {
      const before = connecting;
      const options = { device: peer, host: HOSTILE_HOST, nqn: NQN, timeout: 2000 };
      connecting = connect(options).catch(() => undefined);
      void before.then((controller) => controller?.close());
    };
    const meet = await asService(hostile, NVME_PORT, invite);
    const talk = async () => {
      await close();
      await talkAsClient(PROTOCOLS.nvme, { device, peer });
    };
    return { meet, talk, close };
  },
};
