/**
 * The core replaces either end of every captured conversation. It receives the other end's messages. For the same calls
 * of the application it must send the same bytes as Linux; only transaction ids that our end chooses may differ.
 */
import { expect, describe as group, test } from 'vitest';
import { CMA_HDR_BYTES, parseCmaHdr } from '../../src/cm/core/cmahdr.js';
import { CmCore } from '../../src/cm/core/core.js';
import { mtuBytes } from '../../src/cm/core/derive.js';
import { encodeMad, parseMad } from '../../src/cm/core/mad.js';
import type { Message } from '../../src/cm/core/messages.js';
import { parseServiceId } from '../../src/cm/core/serviceid.js';
import { PACKET_LIFE_TIME } from '../../src/cm/core/times.js';
import { type CapturedMad, CM_CAPTURES, capturedMads } from './capturedmads.js';

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');

test('the captures contain every message but MRA, LAP and APR', () => {
  const names = CM_CAPTURES.flatMap(capturedMads).map(({ message }) => message.name);
  expect([...new Set(names)].sort()).toEqual(
    ['DREP', 'DREQ', 'REJ', 'REP', 'REQ', 'RTU', 'SIDR_REP', 'SIDR_REQ'].sort(),
  );
  expect(names.length).toBeGreaterThan(70);
});

test.each(CM_CAPTURES)('%s: every message is written as it was read', (capture) => {
  for (const { bytes, message } of capturedMads(capture))
    expect(hex(encodeMad(message.name, message.tid, message))).toBe(hex(bytes));
});

group.each(CM_CAPTURES)('%s', (capture) => {
  const mads = capturedMads(capture);
  const client = mads[0]?.from as string;

  test('the core as the client of the capture’s server', () => {
    new Replay(mads, client).run();
  });

  test('the core as the server of the capture’s client', () => {
    const isServed = mads.some(({ message: { name } }) => name === 'REP' || name === 'SIDR_REP');
    new Replay(mads, mads[0]?.to as string).run(isServed);
  });
});

class Replay {
  readonly #core: CmCore;
  #nextRandom = 0;
  #now = 0;
  readonly #ids = new Map<number, number>();

  constructor(
    readonly mads: readonly CapturedMad[],
    readonly us: string,
  ) {
    // our GUID is the one in our REQ or REP
    const own = mads.filter(({ from }) => from === us).map(({ message }) => message);
    const told = own.find((message) => message.name === 'REQ' || message.name === 'REP');
    this.#core = new CmCore({
      guid: told && 'localCaGuid' in told ? told.localCaGuid : 1n,
      random: () => this.#nextRandom++,
      host: { isLocal: () => true, maxMtu: 4096 },
    });
  }

  run(listens = false): void {
    if (listens) this.#listen();
    for (const mad of uncrossed(this.mads, this.us)) {
      this.#now += 1;
      if (mad.from === this.us) this.#say(mad);
      else this.#hear(mad);
    }
    // where both ends disconnected at once, the capture may end before the last DREP
    const late = this.#core.takeMessages().map(({ bytes }) => parseMad(bytes) as Message);
    expect(late.filter(({ name }) => name !== 'DREP')).toEqual([]);
  }

  #listen(): void {
    const asked = new Map<bigint, Message<'REQ'> | Message<'SIDR_REQ'>>();
    for (const { message } of this.mads)
      if (message.name === 'REQ' || message.name === 'SIDR_REQ') asked.set(message.serviceId, message);
    for (const message of asked.values()) {
      const { space, port } = parseServiceId(message.serviceId) as { space: 'TCP'; port: number };
      const transport = message.name === 'SIDR_REQ' ? 'UD' : message.transport === 1 ? 'UC' : 'RC';
      this.#core.listen({ space, port, transport, backlog: 100 });
    }
  }

  /** A message of the other end. A message that the core sends in reply by itself must come next in the capture. */
  #hear({ bytes, from, to, message }: CapturedMad): void {
    if (message.name === 'REQ') {
      const isReply = ({ message: m }: CapturedMad) => m.name === 'REP' && m.remoteCommId === message.localCommId;
      const reply = this.mads.find(isReply)?.message as Message<'REP'> | undefined;
      if (reply) this.#nextRandom = reply.localCommId;
    }
    this.#core.receive(bytes, { local: to, remote: from }, this.#now);
    for (const event of this.#core.takeEvents()) {
      if (event.type !== 'CONNECT_REQUEST') continue;
      const key = message.name === 'SIDR_REQ' ? message.requestId : event.id;
      this.#ids.set(key, event.id);
    }
  }

  /** A message of our end: makes the application's call for it, and compares the core's message. */
  #say({ bytes, from, to, message }: CapturedMad): void {
    let [said, ...more] = this.#core.takeMessages();
    if (said === undefined) {
      this.#call(message);
      [said, ...more] = this.#core.takeMessages();
    }
    if (said === undefined) throw new Error(`the core did not say ${message.name}`);
    expect(more).toEqual([]);
    expect(hex(withTid(said.bytes, bytes, message))).toBe(hex(bytes));
    expect([said.local, said.remote].map(plain)).toEqual([from, to]);
  }

  #call(message: Message): void {
    const core = this.#core;
    const now = this.#now;
    switch (message.name) {
      case 'REQ':
        this.#nextRandom = message.localCommId;
        core.connect(parametersOf(message), now);
        break;
      case 'REP': {
        const { localQpn: qpNum, flowControl, srq, ...rest } = message;
        core.accept(message.localCommId, { ...rest, qpNum, flowControl: flowControl === 1, srq: srq === 1 }, now);
        break;
      }
      case 'RTU':
        core.establish(message.localCommId, message.privateData, now);
        break;
      case 'DREQ':
      case 'DREP':
        core.disconnect(message.localCommId, now, message.privateData);
        break;
      case 'SIDR_REQ': {
        this.#nextRandom = message.requestId;
        const { source, destination, privateData } = addressesOf(message);
        core.resolveService({ source, destination, privateData }, now);
        break;
      }
      case 'SIDR_REP': {
        const id = this.#ids.get(message.requestId) as number;
        core.acceptService(id, { qpNum: message.qpn, qkey: message.qkey }, message.privateData, now);
        break;
      }
    }
  }
}

/** Our message with the captured transaction id, where our end chooses it. */
function withTid(ours: Uint8Array, theirs: Uint8Array, { name }: Message): Uint8Array {
  if (!['REQ', 'RTU', 'DREQ', 'SIDR_REQ'].includes(name)) return ours;
  const bytes = Uint8Array.from(ours);
  bytes.set(theirs.subarray(8, 16), 8);
  return bytes;
}

/** Messages in the order of our end: when both ends disconnected at once, it sent its DREQ before it received one. */
function uncrossed(mads: readonly CapturedMad[], us: string): CapturedMad[] {
  const ordered = [...mads];
  for (const mad of mads) {
    const { message } = mad;
    if (mad.from !== us || message.name !== 'DREQ') continue;
    const theirs = ordered.findIndex(
      ({ message: m }) =>
        m.name === 'DREQ' && m.localCommId === message.remoteCommId && m.remoteCommId === message.localCommId,
    );
    const own = ordered.indexOf(mad);
    if (theirs < 0 || theirs > own) continue;
    ordered.splice(own, 1);
    ordered.splice(theirs, 0, mad);
  }
  return ordered;
}

const plain = (gid: string) => gid.replace(/^::ffff:(?=\d+\.)/, '');

function addressesOf(message: Message<'REQ'> | Message<'SIDR_REQ'>) {
  const hdr = parseCmaHdr(message.privateData);
  const service = parseServiceId(message.serviceId);
  if (hdr === undefined || service === undefined) throw new Error('no message of rdma_cm');
  return {
    space: service.space,
    source: { address: hdr.source, port: hdr.sourcePort },
    destination: { address: hdr.destination, port: service.port },
    privateData: message.privateData.subarray(CMA_HDR_BYTES),
  };
}

function parametersOf(req: Message<'REQ'>) {
  return {
    ...req,
    ...addressesOf(req),
    transport: req.transport === 1 ? ('UC' as const) : ('RC' as const),
    qpNum: req.localQpn,
    flowControl: req.flowControl === 1,
    srq: req.srq === 1,
    pathMtu: mtuBytes(req.pathMtu),
    hopLimit: req.primary.hopLimit,
    trafficClass: req.primary.trafficClass,
    sl: req.primary.sl,
    packetLifeTime: req.primary.ackTimeout === 17 ? PACKET_LIFE_TIME : req.primary.ackTimeout - 2,
  };
}
