/**
 * A program on a shared address, driven from outside: reads calls as lines of JSON, `[name, ...arguments]`, and writes
 * their results as lines of JSON. It ends with its standard input.
 */
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { Broker } from '../../src/broker/broker.js';
import {
  type Connection as Conversation,
  type Device,
  type OpenOptions,
  openDevice,
  remoteDevices,
} from '../../src/index.js';
import { BrokerClient } from '../../src/link/broker/client.js';
import { BrokerConnection } from '../../src/link/broker/connection.js';
import { BROKER_NAME } from '../../src/link/broker/protocol.js';
import { native } from '../../src/native.js';

let device: Device;
let fatal: string | undefined;
/** `ended`: connections of ours that have ended; `left`: clients. */
const counts = { echoes: 0, wrong: 0, ended: 0, left: 0, served: 0 };
const events: string[] = [];
/** Messages of each of our connections. */
const talks: number[] = [];
const kept: unknown[] = [];

const textOf = (error: unknown) => (error as Error).message;

async function echo(connection: Conversation): Promise<void> {
  for await (const { data } of connection) {
    counts.served++;
    await connection.send(data);
  }
}

/** Sends messages that are all different, one after the other, and compares the answers. */
async function talk(connection: Conversation, name: string): Promise<void> {
  const number = talks.push(0) - 1;
  for (let i = 0; ; i++) {
    const sent = Buffer.from(`${name} ${i} `.padEnd(1 + ((i * 37) % 3000), 'x'));
    await connection.send(sent);
    const { value, done } = await connection[Symbol.asyncIterator]().next();
    if (done) throw new Error('the connection has ended');
    if (!sent.equals(value.data)) counts.wrong++;
    counts.echoes++;
    talks[number] = i + 1;
  }
}

function* endless(): Iterable<Buffer> {
  for (;;) yield Buffer.alloc(2 ** 16, 'x');
}

/** The calls. Their results are plain data. */
export const CALLS = {
  /** Loads the library, then changes the user of the process: the other user may not be allowed to read the project. */
  async become(id: number): Promise<void> {
    native();
    await (await openDevice({ link: 'memory' })).close();
    process.setgroups?.([]);
    process.setgid?.(id);
    process.setuid?.(id);
  },

  /** Opens the device. @returns the notes about its port, or the error */
  async open(options: OpenOptions): Promise<{ slot: number; notes: string[] } | { error: string }> {
    try {
      device = await openDevice({ broker: true, ...options });
    } catch (error) {
      return { error: textOf(error) };
    }
    device.on('event', (event) => {
      events.push(event.type);
      if (event.type === 'DEVICE_FATAL') fatal = event.reason;
    });
    const notes = device.notes.filter((note) => note.includes('UDP port'));
    return { slot: device.link.sharedPort?.slot ?? 0, notes };
  },

  /** Serves echoes. @returns the error */
  async listen(port: number): Promise<string | undefined> {
    try {
      const listener = await device.listen({ port });
      const serve = async () => {
        for await (const request of listener)
          request
            .accept()
            .then(echo)
            .finally(() => counts.left++)
            .catch(() => {});
      };
      serve().catch(() => {});
    } catch (error) {
      return textOf(error);
    }
    return undefined;
  },

  /** Connects, and exchanges messages until the connection ends. @returns the error */
  async talk(host: string, port: number): Promise<string | undefined> {
    try {
      const connection = await device.connect({ host, port });
      talk(connection, `${process.pid} to ${port}`).catch(() => counts.ended++);
    } catch (error) {
      return textOf(error);
    }
    return undefined;
  },

  counts: () => ({
    ...counts,
    talks,
    fatal: fatal ?? null,
    drops: fatal === undefined ? (device.counters().drop_qpn ?? 0) : 0,
  }),

  close: () => device.close(),

  /** Binds the port of an address, as rxe and other programs do. */
  occupy: async (address: string) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4').bind(4791, address);
    await once(socket, 'listening');
  },

  events: () => events,

  /** Asks the broker for control of its programs. @returns the error */
  control: () => remoteDevices().then(() => undefined, textOf),

  slot: () => device.link.sharedPort?.slot,

  pid: () => process.pid,

  /** Process that listens on the broker's name, or 0. */
  brokerPid(): number {
    const fd = native().unix.connect(BROKER_NAME);
    if (fd < 0) return 0;
    const peer = native().unix.peer(fd);
    native().closeFd(fd);
    return typeof peer === 'number' ? 0 : peer.pid;
  },

  /** Listens as a service manager does, and passes the socket to the command `broker`. */
  activate(main: string): void {
    const listener = native().unix.listen(BROKER_NAME);
    const command = `LISTEN_PID=$$ LISTEN_FDS=1 exec "${process.execPath}" --import tsx "${main}" broker -q --idle 1`;
    spawn('sh', ['-c', command], { stdio: ['ignore', 'ignore', 'inherit', listener] }).unref();
  },

  /** Removes what tells the programs of an address apart, by a socket that the broker has lent. */
  async detach(address: string): Promise<void> {
    const client = await BrokerClient.join([{ address, scope: 0 }], false);
    const fd = await client.socketOf({ address, scope: 0 });
    // of SOL_SOCKET: SO_DETACH_REUSEPORT_BPF
    const script = 'open(my $socket, "+<&=", 3) or die $!; setsockopt($socket, 1, 68, pack("i", 0)) or die $!';
    const [status] = await once(spawn('perl', ['-e', script], { stdio: ['ignore', 'ignore', 'inherit', fd] }), 'exit');
    kept.push(client);
    if (status !== 0) throw new Error('not detached');
  },

  /** Runs a broker that admits nobody. */
  refuse: () => void kept.push(Broker.open({ admits: () => false })),

  /** Takes the broker's name, and answers each first message with an error. */
  answer(error: string, message: string): void {
    const listener = native().unix.listen(BROKER_NAME);
    const poller = new (native().Poller)(() => {
      const fd = native().unix.accept(listener);
      const connection = new BrokerConnection(fd, {
        onMessage: ({ id }) => connection.send({ id, error, message }),
        onEnd: () => {},
      });
      kept.push(connection);
      poller.start(-1, false);
    });
    poller.open([listener]);
    poller.start(-1, false);
    kept.push(poller);
  },

  /** Joins, and answers each request of a controller with a text; without one, with a line that does not end. */
  async answerControl(address: string, text?: string): Promise<void> {
    const client = await BrokerClient.join([{ address, scope: 0 }], false);
    client.onControl = (fd) => {
      native().releaseFd(fd);
      const socket = new Socket({ fd, readable: true, writable: true });
      socket.on('error', () => socket.destroy());
      socket.once('data', () => (text === undefined ? Readable.from(endless()).pipe(socket) : socket.write(text)));
    };
    kept.push(client);
  },

  /** Joins with so many devices, as far as the broker lets them. @returns their number, and the error */
  async joinMany(count: number, address: string): Promise<{ joined: number; error?: string }> {
    for (let joined = 0; joined < count; joined++)
      try {
        kept.push(await BrokerClient.join([{ address, scope: 0 }], false));
      } catch (error) {
        return { joined, error: textOf(error) };
      }
    return { joined: count };
  },

  /** Keeps the event loop busy. */
  block(ms: number): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  },

  sleep: (ms: number) => sleep(ms),
};

if (process.argv[1] === import.meta.filename) {
  console.log('ready');
  for await (const line of createInterface({ input: process.stdin })) {
    const [name, ...call] = JSON.parse(line) as [keyof typeof CALLS, ...unknown[]];
    const result = await (CALLS[name] as (...each: unknown[]) => unknown)(...call);
    console.log(JSON.stringify(result ?? null));
  }
  process.exit();
}
