// Connections that one end loses: our process is killed, rxe is re-created, the guest is replaced.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { MadAgent } from '../../src/cm/madagent.js';
import type { Connection, ConnectionOptions, Device, DeviceConnectOptions, Server } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import { Guest } from './guest/guest.js';
import { addressesOf, CARD, GUEST } from './guest/network.js';

const MTU = 1500;
const PORT = 7174;
/** Longer than a message takes on a busy machine, in ms. */
const PATIENCE = 20_000;
/** Bytes of rping's first message, the address of its buffer. */
const ADVERTISEMENT = 16;

const rping = (...more: string[]) => ['rping', ...more, '-p', String(PORT), '-C', '1'];
const SERVER = rping('-s', '-P', '-a', '0.0.0.0');
const CLIENT = rping('-c', '-a', CARD.ipv4);

async function dial(device: Device, options: Partial<DeviceConnectOptions> = {}): Promise<Connection> {
  return device.connect({ host: GUEST.ipv4, port: PORT, timeout: PATIENCE, ...options });
}

/** Accepts the next client and waits for its first message. */
async function visitor(server: Server, options: ConnectionOptions = {}): Promise<Connection> {
  for await (const request of server) {
    const connection = await request.accept(options);
    expect((await connection.receive({ timeout: PATIENCE }))?.data.length).toBe(ADVERTISEMENT);
    return connection;
  }
  throw new Error('nobody came');
}

const endOf = (connection: Connection) => new Promise<Error | undefined>((done) => connection.once('close', done));
const peerQpn = ({ qp }: Connection) => qp.query().destQpNum;

/** Starts a process of ours that the test will kill. */
async function processToKill(...args: readonly string[]): Promise<ChildProcess> {
  const child = fork(join(import.meta.dirname, 'killed-process.ts'), args, { execArgv: ['--import', 'tsx'] });
  const [word] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  expect(['listening', 'connected']).toContain(word);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describeWithRxe('whoever has forgotten', MTU, (environment) => {
  /** Re-creates rxe: its queue pair numbers start over, and no frame of the old device leaves the guest. */
  async function remakeRxe(...commands: readonly { kill(): Promise<unknown> }[]): Promise<void> {
    await environment.guest.run('ip link set eth0 down');
    for (const command of commands) await command.kill();
    await environment.guest.run(
      'rdma link delete rxe0 && ip link set eth0 up && rdma link add rxe0 type rxe netdev eth0 && rdma link show rxe0/1',
    );
  }

  test('our killed client connects again at once', async () => {
    const server = environment.guest.spawn(SERVER);
    await environment.guest.listening(PORT, 'rdma');
    await kill(await processToKill('client', String(PORT), GUEST.ipv4));
    await using our = await OurDevice.open('packet');
    await using connection = await dial(our.device);
    expect((await MadAgent.of(our.device)).counters()['cm_tx_retries.req'] ?? 0).toBe(0);
    // the queue pair of the old connection still exists
    expect((await environment.guest.run('rdma resource show qp type RC')).match(/state RTS/g)?.length).toBe(2);
    await connection.close();
    await server.kill();
  });

  test('our killed server takes the next client at once', async () => {
    const child = await processToKill('server', String(PORT));
    const old = environment.guest.spawn(CLIENT);
    await once(child, 'message');
    await kill(child);
    await using our = await OurDevice.open('packet');
    const server = await our.device.listen({ port: PORT });
    const client = environment.guest.spawn(CLIENT);
    const connection = await visitor(server);
    // the DREQ of the old connection is answered, although it is unknown here
    await old.kill();
    const agent = await MadAgent.of(our.device);
    await eventually(() => expect(agent.counters()['cm_ignored.dreq']).toBe(1));
    expect(connection.isOpen).toBe(true);
    await Promise.all([client.kill(), endOf(connection)]);
    await server.close();
  });

  test('rxe is created again, and its server gets the number of the old one’s queue pair', async () => {
    await remakeRxe();
    await using our = await OurDevice.open('packet');
    const server = environment.guest.spawn(SERVER);
    await environment.guest.listening(PORT, 'rdma');
    const old = await dial(our.device);
    const [number, end] = [peerQpn(old), endOf(old)];
    await remakeRxe(server);
    // rping ends when its REP is rejected, and the REQ that is sent again may find no rping that listens
    const next = environment.guest.spawn(`while :; do ${SERVER.join(' ')}; done`);
    await environment.guest.listening(PORT, 'rdma');
    await using connection = await eventually(() => dial(our.device));
    // the first REP is rejected, because its number belongs to a connection
    expect((await MadAgent.of(our.device)).counters()['cm_tx_msgs.rej']).toBe(1);
    expect(peerQpn(connection)).not.toBe(number);
    expect((await end)?.message).toContain('no longer knows the connection');
    await connection.close();
    await next.kill();
  });

  test('rxe is created again, and its client gets the number of the old one’s queue pair', async () => {
    await remakeRxe();
    await using our = await OurDevice.open('packet');
    const server = await our.device.listen({ port: PORT });
    const client = environment.guest.spawn(CLIENT);
    const old = await visitor(server);
    const end = endOf(old);
    await remakeRxe(client);
    const { stdout, stderr } = await environment.guest.exec(CLIENT);
    expect(stdout + stderr).toContain('RDMA_CM_EVENT_REJECTED, error 10');
    expect((await end)?.message).toContain('no longer knows the connection');
    const next = environment.guest.spawn(CLIENT);
    const connection = await visitor(server);
    await Promise.all([next.kill(), endOf(connection)]);
    await server.close();
  });

  test('a guest that is gone is detected by its silence, in both roles; then another takes its place', async () => {
    await using our = await OurDevice.open('packet');
    const watch = { keepAlive: 100, peerTimeout: 3000 };
    environment.guest.spawn(SERVER);
    await environment.guest.listening(PORT, 'rdma');
    const calling = await dial(our.device, watch);
    await using server = await our.device.listen({ port: PORT });
    environment.guest.spawn(CLIENT);
    const called = await visitor(server, watch);
    const ends = Promise.all([calling, called].map(endOf));
    await environment.guest.stop();
    const guest = await Guest.start({ tap: GUEST.tap, mtu: MTU, addresses: addressesOf(GUEST) });
    try {
      for (const end of await ends) expect(end?.message).toContain('no packet of the peer has come');
      const next = guest.spawn(SERVER);
      await guest.listening(PORT, 'rdma');
      await using connection = await dial(our.device);
      await connection.close();
      await next.kill();
    } finally {
      await guest.stop();
    }
  });

  test('a guest that has ended is there again for the next test', async () => {
    expect(await environment.guest.run(['rdma', 'link'])).toContain('rxe0');
  });
});
