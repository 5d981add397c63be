// ICMP errors of a real host: attempts fail as those of TCP do, and the frames that learn of the errors are whole.
import { once } from 'node:events';
import * as nodeNet from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MadAgent } from '../../src/cm/madagent.js';
import { type Device, type Link, openDevice } from '../../src/index.js';
import * as ourNet from '../../src/net.js';
import { all, describeIf, netPrivilege, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { PeerNamespace, sh } from '../link/netns.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const NET = 178;
const PORT = 7480;
const FAMILIES = [
  ['IPv4', `10.${NET}.0.`],
  ['IPv6', `fd00:${NET}::`],
] as const;
const LINKS = ['packet', 'udp', ...(xdpPrivilege().ok ? (['xdp'] as const) : [])] as const;
const WAYS = LINKS.flatMap((link) => FAMILIES.map(([family, prefix]) => [link, family, prefix] as const));

/** Destinations behind the host, by the type of its route. Linux answers few packets by ICMP of IPv4 in a second. */
const ROUTED = [
  ['packet', 'ip -4', 'unreachable', '192.0.2.1', 'ipv4/ip_forward'],
  ...LINKS.flatMap((link) =>
    (['unreachable', 'prohibit'] as const).map(
      (type) => [link, 'ip -6', type, '2001:db8::1', 'ipv6/conf/all/forwarding'] as const,
    ),
  ),
] as const;

/** Connects by TCP and by sockets on a device. @returns the codes of the errors */
async function codes(device: Device, host: string): Promise<string[]> {
  const sockets = [nodeNet.connect({ host, port: PORT }), ourNet.connect({ device, host, port: PORT })];
  const errors = sockets.map((socket) => once(socket, 'error') as Promise<[NodeJS.ErrnoException]>);
  return (await Promise.all(errors)).map(([{ code = '' }]) => code);
}

/** Counts the frames that leave by the error sockets of a link. */
function countFrames(link: Link): () => number {
  let sent = 0;
  const open = link.openErrorSocket?.bind(link);
  link.openErrorSocket = (source, onError) => {
    const socket = open?.(source, onError);
    const send = (frame: Uint8Array) => {
      sent++;
      return socket?.send(frame) ?? false;
    };
    return socket && { ...socket, send };
  };
  return () => sent;
}

describeIf(all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip')), 'ICMP errors', () => {
  let host: PeerNamespace;
  beforeAll(async () => {
    host = await PeerNamespace.open('icm', NET);
  });
  afterAll(() => host.close());

  test.each(WAYS)(
    'a connection to a host without a device fails with ECONNREFUSED, as over TCP: %s, %s',
    async (link, _, prefix) => {
      await using device = await openDevice({ interface: host.near, link });
      expect(await codes(device, `${prefix}2`)).toEqual(['ECONNREFUSED', 'ECONNREFUSED']);
      await using socket = await device.createSocket();
      await expect(socket.send('hello', PORT, `${prefix}2`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    },
  );

  test.each(LINKS)(
    'a connection to a host that does not exist fails with EHOSTUNREACH, as over TCP: %s',
    async (link) => {
      await using device = await openDevice({ interface: host.near, link });
      const tried = await Promise.all(FAMILIES.map(([, prefix]) => codes(device, `${prefix}99`)));
      expect(tried).toEqual(FAMILIES.map(() => ['EHOSTUNREACH', 'EHOSTUNREACH']));
    },
  );

  test.each(ROUTED)(
    'a router that refuses packets ends an attempt: %s, %s, %s',
    async (link, ip, type, to, setting) => {
      const [, prefix] = FAMILIES[ip === 'ip -4' ? 0 : 1];
      host.sh(`echo 1 > /proc/sys/net/${setting}; ${ip} route add ${type} ${to}`);
      sh(`${ip} route add ${to} via ${prefix}2 dev ${host.near}`);
      try {
        await using device = await openDevice({ interface: host.near, link });
        const [error] = await once(ourNet.connect({ device, host: to, port: PORT }), 'error');
        expect(error.cause).toMatchObject({ code: 'EHOSTUNREACH', message: expect.stringMatching(/ICMP, E/) });
      } finally {
        sh(`${ip} route del ${to} via ${prefix}2 dev ${host.near}`);
        host.sh(`${ip} route del ${type} ${to}`);
      }
    },
  );

  test.each(WAYS)('a peer accepts the request that an error socket repeats: %s, %s', async (link, _, prefix) => {
    const lost = ['--fault', 'drop the 1st UD.SEND_ONLY received'];
    const wrap = ['env', 'WASM_ROCE_BROKER=off', 'sh', '-c', 'exec "$@" 2>&1', 'sh'];
    const listener = host.start(MAIN, ['listen', '--rsocket', '-k', `${PORT}`, '--ib-dev', host.far, ...lost], wrap);
    expect(await listener.line()).toMatch(/^listening on /);
    await using device = await openDevice({ interface: host.near, link });
    const framesOf = countFrames(device.link);
    const socket = ourNet.connect({ device, host: `${prefix}2`, port: PORT });
    await once(socket, 'connect');
    socket.destroy();
    await listener.kill();
    const { 'cm_tx_retries.req': repeated } = (await MadAgent.of(device)).counters();
    expect([framesOf(), repeated]).toEqual([1, 1]);
  });
});
