// Connections of which one end forgets: our process is killed, rxe is made anew, the guest's machine is replaced.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CmPort } from '../../src/cm/port.js';
import type { Connection, ConnectionOptions, Device, DialOptions, Server } from '../../src/index.js';
import { OurDevice } from './card.js';
import { Guest } from './guest/guest.js';
import { addressesOf, CARD, GUEST } from './guest/network.js';
import { describeWithRxe } from './world.js';

const MTU = 1500;
const PORT = 7174;
/** Much less than a message takes to be sent again (4 s). */
const AT_ONCE = 3500;
/** rping's first message: where its buffer is. */
const ADVERTISEMENT = 16;

const rping = (...more: string[]) => ['rping', ...more, '-p', String(PORT), '-C', '1'];
const SERVER = rping('-s', '-P', '-a', '0.0.0.0');
const CLIENT = rping('-c', '-a', CARD.ipv4);

async function dial(device: Device, options: Partial<DialOptions> = {}): Promise<Connection> {
  return device.connect({ host: GUEST.ipv4, port: PORT, timeout: AT_ONCE, ...options });
}

/** The next client, which has said its first word. */
async function visitor(server: Server, options: ConnectionOptions = {}): Promise<Connection> {
  for await (const request of server) {
    const connection = await request.accept(options);
    expect((await connection.receive({ timeout: AT_ONCE }))?.data.length).toBe(ADVERTISEMENT);
    return connection;
  }
  throw new Error('nobody came');
}

const endOf = (connection: Connection) => new Promise<Error | undefined>((done) => connection.once('close', done));
const peerQpn = ({ qp }: Connection) => qp.query().destQpNum;

/** Our other process. */
async function mortal(...args: readonly string[]): Promise<ChildProcess> {
  const child = fork(join(import.meta.dirname, 'mortal.ts'), args, { execArgv: ['--import', 'tsx'] });
  const [word] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  expect(['listening', 'connected']).toContain(word);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describeWithRxe('whoever has forgotten', MTU, (world) => {
  /** rxe as after a restart: it begins to number its queue pairs anew, and nothing of what was gets out. */
  async function remakeRxe(...commands: readonly { kill(): Promise<unknown> }[]): Promise<void> {
    await world.guest.run('ip link set eth0 down');
    for (const command of commands) await command.kill();
    await world.guest.run(
      'rdma link delete rxe0 && ip link set eth0 up && rdma link add rxe0 type rxe netdev eth0 && rdma link show rxe0/1',
    );
  }

  test('our client is killed, and connects anew at once', async () => {
    const server = world.guest.spawn(SERVER);
    await world.guest.listening(PORT, 'rdma');
    await kill(await mortal('client', String(PORT), GUEST.ipv4));
    await using our = await OurDevice.open('packet');
    await using connection = await dial(our.device);
    // the old connection's is there as well
    expect((await world.guest.run('rdma resource show qp type RC')).match(/state RTS/g)?.length).toBe(2);
    await connection.close();
    await server.kill();
  });

  test('our server is killed, and takes the next client at once', async () => {
    const child = await mortal('server', String(PORT));
    const old = world.guest.spawn(CLIENT);
    await once(child, 'message');
    await kill(child);
    await using our = await OurDevice.open('packet');
    const server = await our.device.listen({ port: PORT });
    const client = world.guest.spawn(CLIENT);
    const connection = await visitor(server);
    // the end of the old one is agreed to, although nobody here knows of it
    await old.kill();
    await expect
      .poll(async () => (await CmPort.of(our.device)).counters()['cm_ignored.dreq'], { timeout: AT_ONCE })
      .toBe(1);
    expect(connection.isOpen).toBe(true);
    await Promise.all([client.kill(), endOf(connection)]);
    await server.close();
  });

  test('rxe is made anew, and its server gets the number of the old one’s queue pair', async () => {
    await remakeRxe();
    await using our = await OurDevice.open('packet');
    const server = world.guest.spawn(SERVER);
    await world.guest.listening(PORT, 'rdma');
    const old = await dial(our.device);
    const [number, end] = [peerQpn(old), endOf(old)];
    await remakeRxe(server);
    // rping does not survive that its answer is refused
    const next = world.guest.spawn(`while :; do ${SERVER.join(' ')}; done`);
    await world.guest.listening(PORT, 'rdma');
    await using connection = await dial(our.device);
    // its first answer is refused, as the number belongs to a connection; it is asked again soon enough
    expect((await CmPort.of(our.device)).counters()['cm_tx_retries.req']).toBe(1);
    expect(peerQpn(connection)).not.toBe(number);
    expect((await end)?.message).toContain('knows the connection no more');
    await connection.close();
    await next.kill();
  });

  test('rxe is made anew, and its client gets the number of the old one’s queue pair', async () => {
    await remakeRxe();
    await using our = await OurDevice.open('packet');
    const server = await our.device.listen({ port: PORT });
    const client = world.guest.spawn(CLIENT);
    const old = await visitor(server);
    const end = endOf(old);
    await remakeRxe(client);
    const { stdout, stderr } = await world.guest.exec(CLIENT);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 10');
    expect((await end)?.message).toContain('knows the connection no more');
    const next = world.guest.spawn(CLIENT);
    const connection = await visitor(server);
    await Promise.all([next.kill(), endOf(connection)]);
    await server.close();
  });

  test('the machine is gone: silence tells, in both roles; then another takes its place', async () => {
    await using our = await OurDevice.open('packet');
    const keepAlive = 100;
    world.guest.spawn(SERVER);
    await world.guest.listening(PORT, 'rdma');
    const calling = await dial(our.device, { keepAlive });
    await using server = await our.device.listen({ port: PORT });
    world.guest.spawn(CLIENT);
    const called = await visitor(server, { keepAlive });
    const ends = Promise.all([calling, called].map(endOf));
    await world.guest.stop();
    const guest = await Guest.start({ tap: GUEST.tap, mtu: MTU, addresses: addressesOf(GUEST) });
    try {
      for (const end of await ends) expect(end?.message).toContain('RETRY_EXC_ERR');
      const next = guest.spawn(SERVER);
      await guest.listening(PORT, 'rdma');
      await using connection = await dial(our.device);
      await connection.close();
      await next.kill();
    } finally {
      await guest.stop();
    }
  });
});
