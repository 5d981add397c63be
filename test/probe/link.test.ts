// Scripts over a real link, beside the queue pairs of the card.
import { afterEach, expect, test } from 'vitest';
import { macText } from '../../src/base/address.js';
import { createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { LinkPort } from '../../src/probe/link/linkport.js';
import { ScriptedLink } from '../../src/probe/link/scriptedlink.js';
import { flowOf } from '../../src/probe/packet/packets.js';
import { parseScript } from '../../src/probe/script/parse.js';
import { runScript } from '../../src/probe/script/run.js';

const devices: Device[] = [];
afterEach(async () => {
  for (const device of devices.splice(0)) await device.close({ force: true });
});

async function open() {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: ['10.0.0.1'] }));
  const tester = await openDevice({ link });
  const peer = await openDevice({ hub, addresses: ['10.0.0.2'] });
  devices.push(tester, peer);
  return { link, tester, peer };
}

async function end(device: Device) {
  const [pd, cq] = [await device.allocPd(), await device.createCq()];
  const mr = await pd.regMr(65536, { access: ['localWrite', 'remoteWrite', 'remoteRead'] });
  return { cq, mr, qp: await pd.createQp({ sendCq: cq }) };
}

test('a script is the peer of a queue pair, while the card serves its own', async () => {
  const { link, tester, peer } = await open();
  const [scripted, own, first, second] = await Promise.all([end(tester), end(tester), end(peer), end(peer)]);
  // the scripted queue pair has the number of one that the card never connects
  await first.qp.connect(
    { ...scripted.qp.endpoint(), psn: 100 },
    { access: ['remoteWrite', 'remoteRead'], pathMtu: 1024 },
  );
  await second.qp.connect(own.qp.endpoint(), { access: ['remoteWrite'] });
  await own.qp.connect(second.qp.endpoint());
  const { destMac: peerMac } = await link.resolve('10.0.0.2', '10.0.0.1');
  const port = new LinkPort(
    link.open(scripted.qp.qpNum),
    flowOf({
      ...{ srcMac: macText(link.interface.mac), dstMac: macText(peerMac), srcIp: '10.0.0.1', dstIp: '10.0.0.2' },
      ...{ srcQp: scripted.qp.qpNum, destQp: first.qp.qpNum },
    }),
    1024,
  );
  first.qp.postRecv({ sgList: first.mr });
  own.qp.postSend({ opcode: 'RDMA_WRITE', sgList: own.mr.sge(0, 3000), ...remote(second.mr) });
  const { addr, rkey } = first.mr.remote;
  const result = await runScript(
    parseScript(`
      let first = psn
      > SEND_ONLY ackreq payload=pattern(64) as sent
      < ACK psn=first within 1s as good
      > READ_REQUEST length=2000
      < READ_RESPONSE_FIRST psn=first+1 within 1s
      < READ_RESPONSE_LAST psn=first+2 within 1s
      none < * for 5ms
      measure sent to good as ack_generation
    `),
    { port, variables: { psn: 100n, va: BigInt(addr), rkey: BigInt(rkey) } },
  );
  expect(result.failure?.text).toBeUndefined();
  expect(result.measurements.get('ack_generation')?.[0]).toBeGreaterThan(0);
  expect((await first.cq.next()).byteLen).toBe(64);
  expect((await own.cq.next()).ok).toBe(true);
  expect(link.counters()).toMatchObject({ scripted_dropped: 0 });
  port.queue.close();
  expect(() => link.open(scripted.qp.qpNum).close()).not.toThrow();
});

test.each(['the queue pair number is given back', 'the device is closed'])(
  'the wait for a packet ends when %s',
  async (how) => {
    const { link, tester } = await open();
    const queue = link.open(77);
    const port = new LinkPort(queue, flowOf(), 1024);
    const arrival = port.receive(port.now() + 3600e9);
    if (how === 'the device is closed') await tester.close({ force: true });
    else queue.close();
    expect([await arrival, queue.isClosed]).toEqual([undefined, true]);
  },
);

test('a queue pair number has one script at most', async () => {
  const { link } = await open();
  link.open(77);
  expect(() => link.open(77)).toThrow('queue pair 77 has a script already');
});

const remote = (mr: { remote: { addr: number | bigint; rkey: number } }) => ({
  remoteAddr: mr.remote.addr as never,
  rkey: mr.remote.rkey,
});
