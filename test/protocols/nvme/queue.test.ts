// A queue of a target without rdma_cm, and one of a host.
import { expect, test } from 'vitest';
import { type CmId, createCmId, type Qp } from '../../../src/index.js';
import { TransferBuffers } from '../../../src/protocols/nvme/buffers.js';
import { HostQueue } from '../../../src/protocols/nvme/host/queue.js';
import { Queue } from '../../../src/protocols/nvme/target/queue.js';
import { encodeCommand, NvmOpcode } from '../../../src/protocols/nvme/wire.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

test('a command that ends when its queue pair is closed fails the queue and throws nowhere', async () => {
  const pd = await peer.allocPd();
  const hostPd = await device.allocPd();
  const host = await hostPd.createQp({ sendCq: await device.createCq() });
  const memory = await hostPd.regMr(64);
  let qp: Qp | undefined;
  const id = {
    device: peer,
    async createQp(...[domain, options]: Parameters<CmId['createQp']>) {
      qp = await domain.createQp(options);
      await qp.connect(host.endpoint());
      return qp;
    },
  } as unknown as CmId;
  let end = () => {};
  let commands = 0;
  const failures: string[] = [];
  const listener = {
    qid: 1,
    onCommand() {
      commands++;
      return new Promise<undefined>((resolve) => {
        end = () => resolve(undefined);
      });
    },
    onFailure: ({ message }: Error) => void failures.push(message),
  };
  const buffers = await TransferBuffers.open(pd, { small: 1, large: 1 });
  const queue = await Queue.open(id, pd, { entries: 4, capsuleDataBytes: 0 }, buffers, listener);
  const own = qp as unknown as Qp;
  await host.connect(own.endpoint());
  memory.copyIn(encodeCommand({ opcode: NvmOpcode.FLUSH, nsid: 1 }, 1), 0);
  host.postSend({ opcode: 'SEND', sgList: memory.sge() });
  await eventually(() => expect(commands).toBe(1));
  await own.close();
  end();
  await eventually(() => expect(failures).toEqual([expect.stringMatching(/^EINVAL: qp .* is closed$/)]));
  await queue.close();
  await buffers.close();
});

test('a target that writes with a wrong key fails the queue of the host, with the reason', async () => {
  const listener = createCmId(peer);
  await listener.bindAddr('::', 4420);
  await listener.listen();
  const targetPd = await peer.allocPd();
  const accepted = (async () => {
    const request = await listener.getRequest();
    const qp = await request.createQp(targetPd, { sendCq: await peer.createCq(), maxInlineData: 4 });
    await request.accept();
    return qp;
  })();
  const id = createCmId(device);
  await id.resolveAddr(HOST, 4420);
  await id.resolveRoute();
  const failures: string[] = [];
  const options = { qid: 0, entries: 4, cntlid: 0, capsuleDataBytes: 0, timeoutMs: 60_000 };
  const pd = await device.allocPd();
  const queue = await HostQueue.connect(id, pd, options, ({ message }) => void failures.push(message));
  const target = await accepted;
  target.postSend({ opcode: 'RDMA_WRITE', sgList: new Uint8Array(4), remoteAddr: 0, rkey: 1 });
  await eventually(() => expect(failures).toEqual([expect.stringMatching(/\(QP_ACCESS_ERR\)$/)]));
  await expect(queue.submit('Flush', { opcode: NvmOpcode.FLUSH, nsid: 1 })).rejects.toThrow('QP_ACCESS_ERR');
  await queue.close();
  await listener.close();
});
