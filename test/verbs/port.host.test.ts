// Changes of the interface while the device is open.
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type AsyncEvent, type Device, openDevice, throwIfFailed } from '../../src/index.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
import { ALL, endOn } from './pair.js';

const MEMORY = 16 * 2 ** 20;
const privilege = all(netPrivilege(), programPrivilege('ip'));

/** Changes the interface and returns the `count` events that follow. */
async function eventsOf(device: Device, command: string, count = 1): Promise<string[]> {
  const types: string[] = [];
  const listener = (event: AsyncEvent) => types.push(event.type);
  device.on('event', listener);
  sh(command);
  const signal = AbortSignal.timeout(5000);
  while (types.length < count) await once(device, 'event', { signal });
  device.off('event', listener);
  return types;
}

for (const link of ['packet', 'udp'] as const) {
  describeIf(privilege, `the ${link} link`, () => {
    let device: Device;

    beforeAll(async () => {
      sh(
        'ip link add port0 type veth peer name port1; for i in port0 port1; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; ' +
          'ip link set $i up; done; ip addr add 10.96.0.1/24 dev port0',
      );
      device = await openDevice({ interface: 'port0', link, memoryBytes: MEMORY });
    });

    afterAll(async () => {
      await device?.close({ force: true });
      sh('ip link del port0');
    });

    test('an interface that goes down and up raises PORT_ERR and PORT_ACTIVE', async () => {
      expect(device.queryPort().state).toBe('ACTIVE');
      expect(await eventsOf(device, 'ip link set port1 down')).toEqual(['PORT_ERR']);
      expect(device.queryPort().state).toBe('DOWN');
      expect(await eventsOf(device, 'ip link set port1 up')).toEqual(['PORT_ACTIVE']);
      expect(device.queryPort().state).toBe('ACTIVE');
    });

    test('a change of addresses raises GID_CHANGE, and the table keeps its order', async () => {
      const addresses = () => device.gids.map(({ index, address }) => `${index} ${address}`);
      expect(await eventsOf(device, 'ip addr add 10.96.0.9/24 dev port0')).toEqual(['GID_CHANGE']);
      expect(addresses()).toEqual(['0 10.96.0.1', '1 10.96.0.9']);
      expect(device.queryPort().gidTableLength).toBe(2);
      expect(await eventsOf(device, 'ip addr del 10.96.0.9/24 dev port0')).toEqual(['GID_CHANGE']);
      expect(addresses()).toEqual(['0 10.96.0.1']);
    });

    test('a smaller MTU and a new address take effect at once', async () => {
      expect(device.queryPort().activeMtu).toBe(1024);
      sh('ip link set port0 mtu 700');
      while (device.queryPort().activeMtu !== 512) await new Promise((resolve) => setTimeout(resolve, 5));
      await eventsOf(device, 'ip addr add 10.96.0.9/24 dev port0');
      const [a, b] = [await endOn(device), await endOn(device)];
      const gid = '::ffff:10.96.0.9';
      await a.qp.connect({ ...b.qp.endpoint(), gid }, { access: ALL, sgidIndex: 1 });
      await b.qp.connect({ ...a.qp.endpoint(), gid }, { access: ALL, sgidIndex: 1 });
      a.mr.buffer.write('by the new address');
      a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 18), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
      throwIfFailed(await a.cq.next({ timeout: 20_000 }));
      expect(b.mr.buffer.toString('latin1', 0, 18)).toBe('by the new address');
    });
  });
}
