// NVMe over RDMA with Linux: its host on our target, and our host on its target.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connect, createTarget, DISCOVERY_NQN, discover, fileStorage, type NvmeTarget } from '../../src/nvme.js';
import { type Running, start } from '../cli/run.js';
import { eventually } from '../kit/eventually.js';
import { Random } from '../kit/random.js';
import { type CardOptions, OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import { CARD, GUEST } from './guest/network.js';
import { LinuxHost, LinuxTarget, MemoryDisk } from './guest/nvme.js';
import { hasStorage, installStorage } from './guest/storage.js';

const NQN = 'nqn.2026-01.com.example:disks';
const MIB = 2 ** 20;

describe.skipIf(!hasStorage())('NVMe over RDMA', () => {
  describeWithRxe("Linux's host, and our target", 1500, (environment) => {
    let folder: string;
    let host: LinuxHost;
    let our: OurDevice | undefined;
    let target: NvmeTarget | undefined;
    let faults: string[];

    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
    });
    beforeEach(async () => {
      await installStorage(environment.guest);
      host = new LinuxHost(environment.guest, { address: CARD.ipv4 });
      faults = [];
    });
    afterEach(async () => {
      try {
        await host.disconnectAll();
      } finally {
        await target?.close();
        await our?.[Symbol.asyncDispose]();
        target = our = undefined;
      }
    });
    afterAll(() => rmSync(folder, { recursive: true }));

    const disk = (name: string, size: number) => fileStorage(join(folder, name), { size });

    async function serve(options: CardOptions = {}): Promise<NvmeTarget> {
      our = await OurDevice.open('packet', { memoryBytes: 128 * MIB, ...options });
      target = await createTarget({
        device: our.device,
        onError: ({ message }) => faults.push(message),
        subsystems: [
          {
            nqn: NQN,
            namespaces: [
              { name: 'a', storage: await disk('a', 32 * MIB) },
              { name: 'b', storage: await disk('b', 32 * MIB), blockBytes: 4096 },
            ],
          },
        ],
      });
      return target;
    }

    test('discover, connect and identify work, and the other commands of nvme-cli', async () => {
      await serve();
      const { records } = await host.discover();
      expect(records.map(({ subtype, subnqn, trtype }) => ({ subtype, subnqn, trtype }))).toEqual([
        { subtype: 'current discovery subsystem', subnqn: DISCOVERY_NQN, trtype: 'rdma' },
        { subtype: 'nvme subsystem', subnqn: NQN, trtype: 'rdma' },
      ]);
      await host.connect(NQN, 2);
      const json = async (...words: string[]) =>
        JSON.parse(await environment.guest.run(['nvme', ...words, '-o', 'json'], { timeout: 20_000 }));
      expect(await json('id-ctrl', '/dev/nvme0')).toMatchObject({ mn: expect.stringMatching(/^wasm-roce/), nn: 1024 });
      expect(await json('id-ns', await host.disk(2))).toMatchObject({ nsze: 8192, flbas: 0 });
      expect(await json('smart-log', '/dev/nvme0')).toMatchObject({ critical_warning: 0 });
      for (const words of [
        ['fw-log', '/dev/nvme0'],
        ['error-log', '/dev/nvme0'],
        ['ns-descs', await host.disk(1)],
      ])
        await environment.guest.run(['nvme', ...words], { timeout: 20_000 });
      await host.disconnect(NQN);
      await eventually(() => expect(target?.controllers).toBe(0));
      expect(faults).toEqual([]);
    });

    test('fio writes blocks of all sizes, two jobs, 32 at once, and reads them back', async () => {
      await serve();
      await host.connect(NQN, 2);
      await host.verify(await host.disk(1), { size: 4 * MIB, jobs: 2 });
      await host.verify(await host.disk(2), { size: 4 * MIB, jobs: 2, maxBlock: '1m' });
      expect(faults).toEqual([]);
    });

    test('an ext4 file system is made, mounted, filled, checked and compared', async () => {
      await serve();
      await host.connect(NQN, 2);
      const device = await host.disk(1);
      await environment.guest.run(
        `set -e; mkdir -p /mnt; mkfs.ext4 -q -F ${device}; mount -t ext4 -o discard ${device} /mnt
        cp /usr/bin/busybox /usr/sbin/nvme /mnt; rm /mnt/nvme; umount /mnt; e2fsck -fn ${device}
        mount -t ext4 ${device} /mnt; cmp /usr/bin/busybox /mnt/busybox; umount /mnt`,
        { timeout: 60_000 },
      );
      expect(faults).toEqual([]);
    });

    test('compare, write zeroes, flush and discard have the status that the specification names', async () => {
      await serve();
      await host.connect(NQN, 2);
      const device = await host.disk(1);
      const passes = (...words: string[]) => environment.guest.run(['nvme', ...words], { timeout: 20_000 });
      const zeroes = ['-s', '0', '-c', '7', '-z', '4096', '-d', '/dev/zero'];
      await passes('write', device, ...zeroes);
      await passes('compare', device, ...zeroes);
      await passes('write-zeroes', device, '-s', '0', '-c', '7');
      await passes('flush', device);
      await passes('dsm', device, '-d', '-s', '0', '-b', '8');
      const fails = async (...words: string[]) => {
        const { status, stdout, stderr } = await environment.guest.exec(['nvme', ...words], { timeout: 20_000 });
        expect(status).not.toBe(0);
        return stdout + stderr;
      };
      expect(await fails('compare', device, '-s', '0', '-c', '7', '-z', '4096', '-d', '/usr/bin/busybox')).toMatch(
        /COMPARE|Compare/,
      );
      expect(await fails('read', device, '-s', '65536', '-c', '7', '-z', '4096')).toMatch(
        /LBA_RANGE|LBA Out of Range/i,
      );
    });

    test('namespaces are added and removed', async () => {
      const served = await serve();
      await host.connect(NQN, 2);
      const nsid = served.addNamespace(NQN, { name: 'c', storage: await disk('c', 8 * MIB) });
      await host.untilNamespaces(3);
      await host.verify(await host.disk(nsid), { size: MIB });
      await served.removeNamespace(NQN, nsid);
      await host.untilNamespaces(2);
      await served.removeNamespace(NQN, 2);
      await host.untilNamespaces(1);
      await host.verify(await host.disk(1), { size: MIB });
      expect(faults).toEqual([]);
    });

    test('work goes on with 1 % of the frames lost in each direction', async () => {
      await serve({ faults: { seed: 16, both: { drop: 0.01 } } });
      await host.connect(NQN, 2);
      await host.verify(await host.disk(1), { size: 2 * MIB });
      expect(faults.join()).toBe('');
    });

    test('a silent host is disconnected after its keep-alive timeout, and connects again', async () => {
      const served = await serve();
      await host.connect(NQN, 2, '--keep-alive-tmo=2', '--reconnect-delay=1');
      await environment.guest.run('tc qdisc add dev eth0 root netem loss 100%');
      await eventually(() => expect(served.controllers).toBe(0));
      expect(faults.join()).toMatch(/the host was silent for \d+ ms/);
      await environment.guest.run('tc qdisc del dev eth0 root');
      await eventually(() => expect(served.controllers).toBe(1)).catch(async (cause: Error) => {
        throw new Error(`${cause.message}\n${await environment.guest.run('dmesg | tail -n 12')}`, { cause });
      });
      await host.untilState('live');
      await host.verify(await host.disk(1), { size: MIB });
    });

    test('fio goes on and finds everything after the target was killed during writes and restarted', async () => {
      const words = ['--namespace', `a=${join(folder, 'killed')},size=32M`, '--nqn', NQN, '--ib-dev', CARD.interface];
      const begin = async (): Promise<Running> => {
        const running = start(['nvme-target', '--link', 'packet', '--address', CARD.ipv4, ...words]);
        await running.says('serving');
        return running;
      };
      let running = await begin();
      try {
        await host.connect(NQN, 1, '--keep-alive-tmo=2', '--reconnect-delay=1');
        let isDone = false;
        const verified = host.verify(await host.disk(1), { size: 16 * MIB }).finally(() => {
          isDone = true;
        });
        // awaited below, unless the test fails before
        verified.catch(() => {});
        for (let round = 0; round < 2 && !isDone; round++) {
          await Promise.race([verified, host.untilWritten((round + 1) * 2 * MIB)]);
          running.child.kill('SIGKILL');
          await once(running.child, 'exit');
          running = await begin();
        }
        expect(isDone).toBe(false);
        await verified;
      } finally {
        await host.disconnectAll();
        running.child.kill('SIGKILL');
      }
    });
  });

  describeWithRxe("our host, and Linux's target", 9000, (environment) => {
    let our: OurDevice;
    let memory: MemoryDisk | undefined;
    let target: LinuxTarget | undefined;
    /** The files of the namespaces. */
    let files: readonly string[];

    beforeAll(async () => {
      our = await OurDevice.open('packet', { memoryBytes: 128 * MIB });
    });
    afterAll(() => our[Symbol.asyncDispose]());
    beforeEach(async () => {
      await installStorage(environment.guest);
      memory = await MemoryDisk.create(environment.guest, 16);
      files = [memory.path, '/tmp/namespace2'];
      await environment.guest.run(['truncate', '-s', '16M', files[1] as string]);
      target = await LinuxTarget.serve(environment.guest, NQN, { address: GUEST.ipv4, namespaces: files });
    });
    afterEach(async () => {
      await target?.close();
      await memory?.[Symbol.asyncDispose]();
      target = memory = undefined;
      await environment.guest.run(['rm', '-f', '/tmp/namespace2']);
    });

    const there = () => ({ device: our.device, host: GUEST.ipv4 });

    test('discover names the subsystem', async () => {
      expect((await discover(there())).map(({ nqn }) => nqn)).toContain(NQN);
    });

    test('both namespaces have the bytes that we wrote, at both ends', async () => {
      await using controller = await connect({ ...there(), nqn: NQN, ioQueues: 2 });
      const random = new Random(16);
      for (const nsid of [1, 2] as const) {
        const namespace = controller.namespace(nsid);
        expect([namespace.blockBytes, namespace.bytes]).toEqual([nsid === 1 ? 512 : 4096, 16 * MIB]);
        const model = Buffer.alloc(namespace.bytes);
        for (let position = 0; position < 4 * MIB; ) {
          const parts: Promise<void>[] = [];
          for (let i = 0; i < 8; i++) {
            const data = Buffer.from(random.bytes(namespace.blockBytes * (1 + random.below(40))));
            data.copy(model, position);
            parts.push(namespace.write(position, data, { durable: random.chance(0.1) }));
            position += data.length;
          }
          await Promise.all(parts);
        }
        await namespace.flush();
        const [hash] = (
          await environment.guest.run(['sha256sum', files[nsid - 1] as string], { timeout: 60_000 })
        ).split(' ');
        expect(hash).toBe(createHash('sha256').update(model).digest('hex'));
        expect((await namespace.read(0, 5 * MIB)).equals(model.subarray(0, 5 * MIB))).toBe(true);
        await namespace.discard(0, MIB);
      }
      await controller.namespace(1).writeZeroes(0, 4 * MIB);
      expect((await controller.namespace(1).read(0, 4 * MIB)).every((byte) => byte === 0)).toBe(true);
    });

    test('namespaces are added and removed', async () => {
      await using controller = await connect({ ...there(), nqn: NQN });
      const ids = () => controller.namespaces.map(({ nsid }) => nsid);
      const lost = controller.namespace(2);
      let told = once(controller, 'namespaces');
      await target?.enable(2, false);
      await told;
      expect(ids()).toEqual([1]);
      await expect(lost.read(0, 4096)).rejects.toMatchObject({ name: 'NvmeError' });
      told = once(controller, 'namespaces');
      await target?.enable(2, true);
      await told;
      expect(ids()).toEqual([1, 2]);
      expect((await controller.namespace(2).read(0, 4096)).length).toBe(4096);
    });

    test('a missing subsystem is refused, and a target that goes is reported', async () => {
      await expect(connect({ ...there(), nqn: `${NQN}-none` })).rejects.toMatchObject({ code: 'ENOENT' });
      const controller = await connect({ ...there(), nqn: NQN });
      const closed = once(controller, 'close');
      await target?.unlink();
      expect((await closed)[0]).toMatchObject({ code: 'ECONNRESET' });
      await expect(controller.namespace(1).read(0, 512)).rejects.toMatchObject({ code: 'ECONNRESET' });
    });
  });
});
