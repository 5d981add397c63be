import { afterEach, describe, expect, test } from 'vitest';
import { createMemoryHub, type Device, type OpenOptions, openDevice, type Pd } from '../../src/index.js';

const open = (options: object) => openDevice({ link: 'memory', ...options } as OpenOptions);

describe('openDevice', () => {
  test('refuses an unknown option, and names the known ones', async () => {
    await expect(openDevice({ lnk: 'memory' } as OpenOptions)).rejects.toMatchObject({
      name: 'TypeError',
      code: 'ERR_INVALID_ARG_VALUE',
      message: expect.stringMatching(/^openDevice has no option 'lnk', must be one of mode, spin, .*\blink\b/),
    });
  });

  test.each([
    [null, 'ERR_INVALID_ARG_TYPE', 'the options of openDevice are null, must be an object'],
    ['eth0', 'ERR_INVALID_ARG_TYPE', "the options of openDevice are 'eth0', must be an object"],
    [{ link: 'carrier' }, 'ERR_INVALID_ARG_VALUE', "link is 'carrier', must be 'packet', 'udp', 'xdp', 'memory' or a"],
    [{ link: null }, 'ERR_INVALID_ARG_VALUE', 'link is null'],
    [{ mode: 'fast' }, 'ERR_INVALID_ARG_VALUE', "mode is 'fast', must be 'inline' or 'worker'"],
    [{ interface: 1 }, 'ERR_INVALID_ARG_TYPE', 'interface is 1, must be text'],
    [{ peer: 1 }, 'ERR_INVALID_ARG_TYPE', 'peer is 1, must be text'],
    [{ addresses: '10.0.0.1' }, 'ERR_INVALID_ARG_TYPE', "addresses is '10.0.0.1', must be an array of texts"],
    [{ addresses: [1] }, 'ERR_INVALID_ARG_TYPE', 'addresses[0] is 1, must be text'],
    [{ hub: {} }, 'ERR_INVALID_ARG_TYPE', 'hub is an object, must be made by createMemoryHub'],
    [{ keepAlive: 1 }, 'ERR_INVALID_ARG_TYPE', 'keepAlive is 1, must be true or false'],
    [{ memoryBytes: 1 }, 'ERR_OUT_OF_RANGE', 'memoryBytes is 1, must be from 8388608 to 4294967296'],
    [{ pcap: 3 }, 'ERR_INVALID_ARG_TYPE', 'pcap is 3, must be a path or a stream'],
    [{ seed: {} }, 'ERR_INVALID_ARG_TYPE', 'seed is an object, must be a number, text or bytes'],
    [{ publish: 1 }, 'ERR_INVALID_ARG_TYPE', 'publish is 1, must be text'],
    [{ signal: 1 }, 'ERR_INVALID_ARG_TYPE', 'signal is 1, must be an AbortSignal'],
    [{ fault: { rx: { dorp: 1 } } }, 'ERR_INVALID_ARG_VALUE', "fault.rx has no option 'dorp', must be one of drop,"],
    [{ fault: { rx: { drop: 2 } } }, 'ERR_OUT_OF_RANGE', 'drop 2 is not a probability'],
    [{ wrapLink: {} }, 'ERR_INVALID_ARG_TYPE', 'wrapLink is an object, must be a function'],
    [{ wrapLink: () => ({}) }, 'ERR_INVALID_ARG_TYPE', 'wrapLink returned an object, must return a link'],
    [{ wrapLink: () => ({}), mode: 'worker' }, 'ERR_INVALID_ARG_VALUE', "wrapLink was given with mode 'worker'"],
    [{ xdp: { qeues: [1] } }, 'ERR_INVALID_ARG_VALUE', "xdp has no option 'qeues', must be one of queues, mode,"],
    [{ xdp: { mode: 'copy' } }, 'ERR_INVALID_ARG_VALUE', "xdp.mode is 'copy', must be 'native' or 'generic'"],
    [{ congestion: { speed: 1 } }, 'ERR_INVALID_ARG_VALUE', 'congestion has no parameter speed'],
  ])('refuses %j', async (options, code, message) => {
    const opening = typeof options === 'object' && options !== null ? open(options) : openDevice(options as never);
    await expect(opening).rejects.toMatchObject({ code, message: expect.stringContaining(message) });
  });

  test('takes an undefined option for an absent one', async () => {
    const device = await open({ mode: undefined, interface: undefined, addresses: undefined });
    await device.close();
  });

  test('rejects with the reason of a signal that is aborted meanwhile', async () => {
    await expect(open({ signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
    const abort = new AbortController();
    const opening = open({ hub: createMemoryHub(), signal: abort.signal });
    abort.abort(new Error('too late'));
    await expect(opening).rejects.toThrow('too late');
  });

  test('createMemoryHub refuses an unknown option', () => {
    expect(() => createMemoryHub({ coalesces: true } as object)).toThrow(
      "createMemoryHub has no option 'coalesces', must be one of coalesce",
    );
  });
});

describe('the objects of a device', () => {
  let device: Device;
  afterEach(() => device.close({ force: true }));

  /** Calls with an option that does not exist. */
  const calls: [string, (pd: Pd) => Promise<unknown>][] = [
    ['createCq', () => device.createCq({ cqes: 1 } as object)],
    ['device.close', () => device.close({ forced: true } as object)],
    ['regMr', (pd) => pd.regMr(64, { acces: [] } as object)],
    ['mr.rereg', async (pd) => (await pd.regMr(64)).rereg({ acces: [] } as object)],
    ['createSrq', (pd) => pd.createSrq({ wr: 1 } as object)],
    ['srq.modify', async (pd) => (await pd.createSrq()).modify({ maxWrs: 1 } as object)],
    ['createQp', async (pd) => pd.createQp({ sendCq: await device.createCq(), maxSendWrs: 1 } as never)],
    [
      'qp.connect',
      async (pd) => {
        const qp = await pd.createQp({ sendCq: await device.createCq() });
        await qp.connect(qp.endpoint(), { retries: 1 } as object);
      },
    ],
    [
      'qp.connect',
      async (pd) => {
        const qp = await pd.createQp({ sendCq: await device.createCq() });
        await qp.connect(qp.endpoint(), null as never);
      },
    ],
    ['the wait', async () => (await device.createCq()).next({ timout: 1 } as object)],
    ['ahAttr', () => device.resolveAddress({ grh: { dgid: '10.0.0.2' }, portNum: 1 } as never)],
    ['ahAttr.grh', (pd) => pd.createAh({ grh: { dgid: '10.0.0.2', tos: 1 } } as never)],
  ];

  test.each(calls)('%s refuses an unknown option', async (name, call) => {
    device = await open({ hub: createMemoryHub() });
    const refused = call(await device.allocPd());
    await expect(refused).rejects.toMatchObject({
      name: 'TypeError',
      code: expect.stringMatching(/^ERR_INVALID_ARG_(VALUE|TYPE)$/),
      message: expect.stringMatching(`^(${name} has no option '\\w+', must be one of|the options of ${name} are null)`),
    });
  });

  test('end waits for an address by their signal', async () => {
    device = await open({ hub: createMemoryHub() });
    const signal = AbortSignal.abort(new Error('enough'));
    const pd = await device.allocPd();
    const attr = { grh: { dgid: '10.0.0.1' } };
    await expect(device.resolveAddress(attr, { signal })).rejects.toThrow('enough');
    await expect(pd.createAh(attr, { signal })).rejects.toThrow('enough');
    const qp = await pd.createQp({ sendCq: await device.createCq() });
    await expect(qp.connect(qp.endpoint(), { signal })).rejects.toThrow('enough');
    expect(qp.state).toBe('RESET');
    await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    await expect(qp.modify({ state: 'RTR', ahAttr: attr }, { signal })).rejects.toThrow('enough');
    expect(qp.state).toBe('INIT');
  });
});
