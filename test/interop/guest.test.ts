// The guest by itself, without our card: Linux boots, has an rxe device, and executes commands.
// Run in a network namespace of its own: unshare --net -- npx vitest run test/interop/guest.test.ts
import { crc32 } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Guest, guestUnavailable } from './guest/guest.js';
import { addressesOf, CARD, GUEST, InteropNetwork, networkUnavailable } from './guest/network.js';
import { Peer, type PeerQp, patternBytes } from './guest/peer.js';

const reason = guestUnavailable() ?? networkUnavailable();

test('a missing image is the reason, whatever else is missing', () => {
  const { XDG_CACHE_HOME } = process.env;
  process.env.XDG_CACHE_HOME = '/nowhere';
  const said = guestUnavailable();
  if (XDG_CACHE_HOME === undefined) delete process.env.XDG_CACHE_HOME;
  else process.env.XDG_CACHE_HOME = XDG_CACHE_HOME;
  expect(said).toMatch(/needs the guest image|needs Linux on x86-64/);
});

describe.skipIf(reason)(`a guest with rxe${reason ? ` [skipped: ${reason}]` : ''}`, () => {
  let network: InteropNetwork;
  let guest: Guest;

  beforeAll(async () => {
    network = new InteropNetwork(9000);
    guest = await Guest.start({ tap: GUEST.tap, mtu: 9000, addresses: addressesOf(GUEST) });
  }, 120_000);

  afterAll(async () => {
    await guest?.stop();
    network?.close();
  });

  test('has rxe0, which ibv_devinfo describes with a path MTU of 4096', async () => {
    expect(await guest.run('rdma link show')).toContain('rxe0/1 state ACTIVE');
    expect(await guest.run(['ibv_devinfo', '-d', 'rxe0'])).toMatch(/active_mtu:\s+4096/);
  });

  test('reaches our end of the cable over IPv4 and IPv6', async () => {
    for (const address of [CARD.ipv4, CARD.ipv6]) await guest.run(['busybox', 'ping', '-c', '1', '-W', '5', address]);
  });

  test('returns output and status, also of killed programs', async () => {
    expect(await guest.exec('cat; echo oops >&2; exit 3', { input: 'words\n' })).toEqual({
      status: 3,
      stdout: 'words\n',
      stderr: 'oops\n',
    });
    expect((await guest.exec(['no-such-tool'])).status).toBe(127);
    await expect(guest.exec(['sleep', '60'], { timeout: 100 })).rejects.toThrow('not done within 100 ms');
    const big = 'x'.repeat(3_000_000);
    expect((await guest.exec(['cat'], { input: big })).stdout).toBe(big);
  });

  test('runs commands side by side, though one floods its output', async () => {
    const flood = guest.spawn(['yes']);
    const listener = guest.spawn(['cat']);
    listener.write('first\nsecond');
    await listener.waitFor(/^first$/);
    listener.end();
    const lines: string[] = [];
    for await (const line of listener.lines()) lines.push(line);
    expect(lines).toEqual(['first', 'second']);
    expect((await flood.kill()).status).toBe(128 + 9);
  });

  test('can lose packets: netem is in its kernel', async () => {
    await guest.run('tc qdisc add dev eth0 root netem loss 5%');
    expect(await guest.run('tc qdisc show dev eth0')).toContain('netem');
    await guest.run('tc qdisc del dev eth0 root');
  });

  test.each([
    ['IPv4', 1, '00000000000000000000ffff0a4d0003'],
    ['IPv6', 2, 'fd770000000000000000000000000003'],
  ])('has rxpeer, which speaks with itself over %s', async (_version, index, gid) => {
    await using peer = await Peer.start(guest, index);
    expect(peer.gid).toBe(gid);
    const [a, b] = await connected(peer);
    const [here, there] = [await peer.reg(65536), await peer.reg(65536)];
    const bytes = patternBytes(65536, 7);
    await peer.fill(here, 0, 65536, 7);
    expect(await peer.crc(here, 0, 65536)).toBe(crc32(bytes));

    await a.postSend({
      id: 1,
      op: 'write',
      sge: [{ mr: here, off: 1, len: 5001 }],
      raddr: there.addr + 3n,
      rkey: there.rkey,
    });
    expect(await a.poll()).toMatchObject([{ id: 1, status: 0, opcode: 1, qpn: a.qpn }]);
    expect(await peer.read(there, 3, 5001)).toEqual(Buffer.from(bytes.subarray(1, 5002)));

    const halves = [
      { mr: here, off: 10000, len: 700 },
      { mr: here, off: 20000, len: 1300 },
    ];
    await a.postSend({ id: 2, op: 'read', sge: halves, raddr: there.addr + 3n, rkey: there.rkey });
    expect(await a.poll()).toMatchObject([{ id: 2, status: 0, opcode: 2 }]);
    expect(await peer.read(here, 20000, 1300)).toEqual(Buffer.from(bytes.subarray(701, 2001)));

    await b.postRecv([{ mr: there, off: 8192, len: 4096 }], 3);
    await a.postSend({ id: 4, op: 'send_imm', sge: [{ mr: here, off: 0, len: 4095 }], imm: 0xdeadbeef });
    expect(await b.poll()).toMatchObject([{ id: 3, status: 0, opcode: 128, byteLen: 4095, imm: 0xdeadbeef, flags: 3 }]);
    expect(await a.poll()).toMatchObject([{ id: 4, status: 0, opcode: 0 }]);
    expect(await peer.read(there, 8192, 4095)).toEqual(Buffer.from(bytes.subarray(0, 4095)));

    await peer.write(there, 0, littleEndian(40n));
    const word = [{ mr: here, off: 64, len: 8 }];
    const remote = { raddr: there.addr, rkey: there.rkey };
    await a.postSend({ id: 5, op: 'faa', sge: word, ...remote, add: 2n });
    await a.postSend({ id: 6, op: 'cas', sge: word, ...remote, compare: 42n, swap: 0x1122334455667788n });
    expect(await a.poll(2)).toMatchObject([
      { id: 5, status: 0, opcode: 4 },
      { id: 6, status: 0, opcode: 3 },
    ]);
    expect(await peer.read(there, 0, 8)).toEqual(littleEndian(0x1122334455667788n));
    expect(await peer.read(here, 64, 8)).toEqual(littleEndian(42n));
  });

  test('has an rxpeer with memory windows and 32 pieces', async () => {
    await using peer = await Peer.start(guest);
    const [a, b] = await connected(peer);
    const [here, there] = [await peer.reg(4096), await peer.reg(4096, 1 | 2 | 4 | 16)];
    await peer.fill(here, 0, 4096, 3);
    const rkey = await b.bind(there, 1024, 1024, 2);
    expect(await b.poll()).toMatchObject([{ status: 0, opcode: 5 }]);
    const sge = Array.from({ length: 32 }, (_, i) => ({ mr: here, off: 100 * i + 1, len: i }));
    await a.postSend({ op: 'write', sge, raddr: there.addr + 1024n, rkey });
    expect(await a.poll()).toMatchObject([{ status: 0 }]);
    const bytes = Buffer.from(patternBytes(4096, 3));
    const gathered = Buffer.concat(sge.map(({ off, len }) => bytes.subarray(off, off + len)));
    expect(await peer.read(there, 1024, gathered.length)).toEqual(gathered);
    await b.postRecv();
    await a.postSend({ op: 'send_inv', inv: rkey });
    expect(await b.poll()).toMatchObject([{ status: 0, opcode: 128, inv: rkey }]);
  });

  test('lets rxpeer see a remote access error on both ends', async () => {
    await using peer = await Peer.start(guest);
    const [a, b] = await connected(peer);
    const [here, there] = [await peer.reg(4096), await peer.reg(4096, 1)];
    await a.postSend({ id: 1, op: 'write', sge: [{ mr: here, off: 0, len: 8 }], raddr: there.addr, rkey: there.rkey });
    expect(await a.poll()).toMatchObject([{ id: 1, status: 10 }]);
    expect((await a.state()).state).toBe(6);
    expect((await b.state()).state).toBe(6);
  });

  test('has an rxpeer that refuses what is wrong and goes on', async () => {
    await using peer = await Peer.start(guest);
    const mr = await peer.reg(100);
    await expect(peer.command('dance')).rejects.toThrow('no command dance');
    await expect(peer.command('reg', { size: 'much' })).rejects.toThrow('size=much is not a number');
    await expect(peer.read(mr, 90, 11)).rejects.toThrow('90+11 is outside mr 0 of 100 bytes');
    await expect(peer.command('poll', { qp: 9 })).rejects.toThrow('no qp 9');
    await expect(peer.command('post_send', { qp: 'x', op: 'send' })).rejects.toThrow('not a number');
    expect(await peer.event(0)).toBeUndefined();
  });

  test('tells rxpeer of events', async () => {
    await using peer = await Peer.start(guest);
    await guest.run('ip address add 10.77.0.9/24 dev eth0');
    expect(await peer.event()).toMatchObject({ event: 18, name: 'GID table change' });
    await guest.run('ip address del 10.77.0.9/24 dev eth0');
  });

  test('is stopped when a clean-up is late, and the error has the stacks of its blocked tasks', async () => {
    await using other = await Guest.start();
    await expect(other.cleanUp('sleep 60', 500)).rejects.toThrow(
      /sleep 60: not done within 500 ms.*--- blocked tasks.*sysrq: Show Blocked State/s,
    );
    expect(other.hasEnded).toBe(true);
  });

  test('vanishes when it is stopped', async () => {
    const second = await Guest.start({ mem: 256, smp: 1 });
    const running = second.spawn(['sleep', '60']);
    await second.stop();
    await expect(running.exited).rejects.toThrow('QEMU ended');
    expect(() => second.spawn(['true'])).toThrow('QEMU ended');
  }, 60_000);
});

/** Returns two queue pairs of one peer, connected to each other. */
async function connected(peer: Peer): Promise<[PeerQp, PeerQp]> {
  const [a, b] = [await peer.qp({ sendsge: 32 }), await peer.qp()];
  await a.connect({ dqpn: b.qpn, dpsn: b.psn, dgid: peer.gid });
  await b.connect({ dqpn: a.qpn, dpsn: a.psn, dgid: peer.gid });
  return [a, b];
}

function littleEndian(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}
