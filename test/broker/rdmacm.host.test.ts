/** rdma_cm of the broker, by the commands that librdmacm writes and by those that it does not write. */

import { Socket } from 'node:net';
import { constants } from 'node:os';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Command, EventNumber, PortSpace, QpState, Size } from '../../src/broker/rdmacm/abi.js';
import { CmProgram } from '../../src/broker/rdmacm/program.js';
import { createCmId, createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { native } from '../../src/native.js';
import { eventually } from '../kit/eventually.js';
import { addonPrivilege, describeIf } from '../kit/privileges.js';
import { Random } from '../kit/random.js';

const GUID = new Uint8Array([2, 0, 0, 0xff, 0xfe, 0, 0, 1]);
const SLOT = 7;
const QPN = (SLOT << 16) | 0x123;
/** Length of an event in its stream, behind the number of the id. */
const EVENT_BYTES = 4 + Size.EVENT;

/** A program's end of a file of rdma_cm. */
class End {
  readonly #commands: Socket;
  readonly #events: Socket;
  #received = Buffer.alloc(0);
  #arrived = Buffer.alloc(0);
  isEnded = false;

  constructor([commands, events]: readonly [number, number]) {
    for (const fd of [commands, events]) native().releaseFd(fd);
    this.#commands = new Socket({ fd: commands, readable: true, writable: true });
    this.#events = new Socket({ fd: events, readable: true, writable: true });
    this.#commands.on('data', (data) => {
      this.#received = Buffer.concat([this.#received, data]);
    });
    this.#events.on('data', (data) => {
      this.#arrived = Buffer.concat([this.#arrived, data]);
    });
    this.#commands.on('close', () => {
      this.isEnded = true;
    });
  }

  /** Writes a command. @returns errno and response */
  async ask(command: number, body: Buffer): Promise<[errno: number, response: Buffer]> {
    const head = Buffer.alloc(Size.HEADER);
    head.writeUInt32LE(command, 0);
    head.writeUInt16LE(body.length, 4);
    head.writeUInt16LE(1024, 6);
    this.#commands.write(Buffer.concat([head, body]));
    const length = await eventually(() => {
      expect(this.#received.length).toBeGreaterThanOrEqual(8);
      const all = 8 + this.#received.readUInt32LE(4);
      expect(this.#received.length).toBeGreaterThanOrEqual(all);
      return all;
    });
    const answer = this.#received.subarray(0, length);
    this.#received = this.#received.subarray(length);
    return [answer.readInt32LE(0), answer.subarray(8)];
  }

  /** Creates an id of the port space TCP. */
  async createId(uid = 1): Promise<number> {
    const body = Buffer.alloc(24);
    body.writeBigUInt64LE(BigInt(uid), 0);
    body.writeUInt16LE(PortSpace.TCP, 16);
    const [errno, response] = await this.ask(Command.CREATE_ID, body);
    expect(errno).toBe(0);
    return response.readUInt32LE(0);
  }

  /** Returns the next event: its type, its id, and its status. */
  event(): Promise<{ type: number; id: number; status: number }> {
    return eventually(() => {
      expect(this.#arrived.length).toBeGreaterThanOrEqual(EVENT_BYTES);
      const bytes = this.#arrived.subarray(4, EVENT_BYTES);
      this.#arrived = this.#arrived.subarray(EVENT_BYTES);
      return { type: bytes.readUInt32LE(12), id: bytes.readUInt32LE(8), status: bytes.readInt32LE(16) };
    });
  }

  close(): void {
    this.#commands.destroy();
    this.#events.destroy();
  }
}

/** A structure with the number of an id. */
function withId(bytes: number, at: number, id: number): Buffer {
  const body = Buffer.alloc(bytes);
  body.writeUInt32LE(id, at);
  return body;
}

/** Writes a sockaddr_in. */
function putAddress(body: Buffer, at: number, address: string, port: number): Buffer {
  body.writeUInt16LE(2, at);
  body.writeUInt16BE(port, at + 2);
  for (const [i, part] of address.split('.').entries()) body.writeUInt8(Number(part), at + 4 + i);
  return body;
}

/** Asks for the attributes of a state. */
function stateOf(id: number, state: number): Buffer {
  const body = withId(16, 8, id);
  body.writeUInt32LE(state, 12);
  return body;
}

const bindTo = (id: number, address: string, port: number) => putAddress(withId(40, 36, id), 8, address, port);

describeIf(addonPrivilege(), 'rdma_cm of the broker', () => {
  const [own, other] = ['10.0.0.1', '10.0.0.2'];
  let devices: Device[];
  let program: CmProgram;
  let end: End;

  const open = () => new End(program.open().fds);
  beforeEach(async () => {
    const hub = createMemoryHub();
    const openOn = (address: string) => openDevice({ link: 'memory', hub, addresses: [address] });
    devices = [await openOn(own), await openOn(other)];
    program = new CmProgram({
      device: devices[0] as Device,
      guid: GUID,
      gidIndexOf: () => 0,
      ownsQpn: (qpNum) => qpNum >>> 16 === SLOT,
    });
    end = open();
  });
  afterEach(async () => {
    end.close();
    program.close();
    for (const device of devices) await device.close({ force: true });
  });

  test('binds an id to an address of the device and to no other one, and takes the loopback address for a wildcard', async () => {
    const bind = async (address: string) =>
      (await end.ask(Command.BIND_IP, bindTo(await end.createId(), address, 0)))[0];
    expect(await bind(own)).toBe(0);
    expect(await bind('127.0.0.1')).toBe(0);
    expect(await bind(other)).toBe(constants.errno.ENODEV);
  });

  test('connects a queue pair of the program with a server, which sees its end', async () => {
    const listener = createCmId(devices[1] as Device);
    await listener.bindAddr(other, 7471);
    await listener.listen();
    const id = await end.createId();
    const resolve = putAddress(withId(64, 56, id), 28, other, 7471);
    expect(await end.ask(Command.RESOLVE_IP, resolve)).toEqual([0, Buffer.alloc(0)]);
    expect(await end.event()).toEqual({ type: EventNumber.ADDR_RESOLVED, id, status: 0 });
    await end.ask(Command.RESOLVE_ROUTE, withId(8, 0, id));
    expect(await end.event()).toEqual({ type: EventNumber.ROUTE_RESOLVED, id, status: 0 });
    const connect = withId(288, 272, id);
    connect.writeUInt32LE(QPN, 0);
    expect((await end.ask(Command.CONNECT, connect))[0]).toBe(0);
    const request = await listener.getRequest();
    expect(request.request).toMatchObject({ qpNum: QPN, source: { address: own } });
    const accepting = request.accept({ qpNum: 0x456 });
    expect(await end.event()).toEqual({ type: EventNumber.CONNECT_RESPONSE, id, status: 0 });
    const [errno, attributes] = await end.ask(Command.INIT_QP_ATTR, stateOf(id, QpState.RTR));
    expect([errno, attributes.length, attributes.readUInt32LE(32)]).toEqual([0, Size.QP_ATTR, 0x456]);
    expect((await end.ask(Command.ACCEPT, withId(296, 280, id)))[0]).toBe(0);
    expect(await accepting).toMatchObject({ type: 'ESTABLISHED' });
    await request.disconnect();
    expect(await end.event()).toEqual({ type: EventNumber.DISCONNECTED, id, status: 0 });
    await request.close();
    await listener.close();
  });

  test('refuses a queue pair of another program', async () => {
    const id = await end.createId();
    const connect = withId(288, 272, id);
    connect.writeUInt32LE(0x080123, 0);
    expect((await end.ask(Command.CONNECT, connect))[0]).toBe(constants.errno.EINVAL);
  });

  test('closes the ids of a file with the file, and no other ones', async () => {
    const second = open();
    const listenOn = async (file: End) => {
      const id = await file.createId();
      await file.ask(Command.BIND_IP, bindTo(id, '0.0.0.0', 7000));
      return (await file.ask(Command.LISTEN, withId(8, 0, id)))[0];
    };
    expect(await listenOn(second)).toBe(0);
    expect(await listenOn(end)).toBe(constants.errno.EADDRINUSE);
    second.close();
    await eventually(async () => expect(await listenOn(end)).toBe(0));
  });

  test('answers random commands, and goes on', async () => {
    const random = new Random(20_26);
    const ids = [await end.createId(), await end.createId()];
    for (let i = 0; i < 500; i++) {
      const body = Buffer.from(Array.from({ length: random.below(300) }, () => random.below(256)));
      for (const at of [0, 8, 36, 56, 272, 280]) {
        if (body.length >= at + 4 && random.below(2) === 0) body.writeUInt32LE(ids[random.below(2)] as number, at);
      }
      const command = random.below(24);
      // a value of an option would follow
      if (command === Command.SET_OPTION || command === Command.DESTROY_ID) continue;
      const [errno] = await end.ask(command, body);
      expect(errno).toBeGreaterThanOrEqual(0);
    }
    expect(end.isEnded).toBe(false);
    expect(await end.createId()).toBeGreaterThan(0);
  });
});
