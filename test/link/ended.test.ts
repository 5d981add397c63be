// What a thread had open and did not close ends with it, however it ends.
import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { interfaceNames } from '../../src/link/names.js';
import { attachedProgram } from '../../src/link/xdpfeatures.js';
import { native } from '../../src/native.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './far.js';

const FILE = fileURLToPath(import.meta.url);
const ADDON = fileURLToPath(new URL('../../build/native/wasm_roce.node', import.meta.url));
const INDEX = new URL('../../dist/index.js', import.meta.url).href;
/** How a thread may end, and what it does for that itself. */
const ENDS = {
  'it runs out': '',
  'process.exit': 'process.exit(0)',
  'an exception': `setImmediate(() => { throw new Error('as wanted'); })`,
  terminate: undefined,
};
type How = keyof typeof ENDS;
const HOWS = Object.keys(ENDS) as How[];

/** Runs a program in a thread that ends so. @param look is called with what the program answers, before the end */
async function thread<Answer>(program: string, how: How, look: (answer: Answer) => void): Promise<void> {
  const code = `const { parentPort } = require('node:worker_threads');
    (async () => { ${program} })().catch(String).then((answer) => {
      parentPort.once('message', () => { ${ENDS[how] ?? ''} });
      parentPort.postMessage(answer);
    });`;
  const worker = new Worker(code, { eval: true, argv: [], execArgv: [] });
  worker.on('error', () => {});
  const [answer] = await once(worker, 'message');
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  try {
    look(answer);
  } finally {
    if (how === 'terminate') await worker.terminate();
    else worker.postMessage('end');
    await ended;
  }
}

/** What a file descriptor of this process is open for; no two sockets and no two eventfds say the same. */
function whatIs(fd: number): string {
  try {
    return `${readlinkSync(`/proc/self/fd/${fd}`)} ${readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1')}`;
  } catch {
    return 'nothing';
  }
}

/** Sockets, programs, maps and links of this process. */
const xdpParts = () =>
  readdirSync('/proc/self/fd')
    .map((fd) => whatIs(Number(fd)).split(' ')[0] as string)
    .filter((what) => /^(socket:|anon_inode:bpf)/.test(what));

test.each(HOWS)('file descriptors that the addon handed out: %s', async (how) => {
  const file = openSync(FILE, 'r');
  let fds: number[] = [];
  let what: string[] = [];
  await thread<number[]>(
    `const addon = require('${ADDON}');
    return [addon.nameHold('ended-test/${process.pid}'), addon.wakerOpen(), addon.netlinkListen(),
      addon.holdGroup(Uint8Array.of(239, 1, 2, 3), 1), addon.copyFd(${file})];`,
    how,
    (answer) => {
      fds = answer;
      what = fds.map(whatIs);
    },
  );
  expect(what).toHaveLength(5);
  expect(what).not.toContain('nothing');
  expect(native().nameIsHeld(`ended-test/${process.pid}`)).toBe(false);
  for (const [i, fd] of fds.entries()) expect(whatIs(fd)).not.toBe(what[i]);
  closeSync(file);
});

test('one that was closed is not closed again, as its number may be of something else by then', async () => {
  const opened: number[] = [];
  await thread<number>(
    `const addon = require('${ADDON}');
    const fd = addon.wakerOpen();
    addon.closeFd(fd);
    return fd;`,
    'it runs out',
    (fd) => {
      // the lowest number that is free is the next to be given
      while (!opened.includes(fd) && opened.length < 100) opened.push(openSync(FILE, 'r'));
    },
  );
  for (const fd of opened) {
    native().closeFd(fd);
    expect(fstatSync(fd).isFile()).toBe(true);
    closeSync(fd);
  }
});

test('a name given back twice takes no other away', () => {
  const names = interfaceNames(`ended-${process.pid}`);
  const release = names.hold('first') as () => void;
  release();
  const releaseSecond = names.hold('second') as () => void;
  release();
  expect([names.isHeld('first'), names.isHeld('second')]).toEqual([false, true]);
  releaseSecond();
  expect(names.isHeld('second')).toBe(false);
});

test.each(HOWS)('a device that listens, twice in turn: %s', async (how) => {
  for (let turn = 0; turn < 2; turn++)
    await thread(
      `const { openDevice } = await import('${INDEX}');
      const device = await openDevice({ link: 'udp', interface: 'lo', addresses: ['127.99.1.1'], memoryBytes: 16 * 2 ** 20 });
      await device.listen({ port: 7778 });
      return 'listens';`,
      how,
      (answer) => expect(answer).toBe('listens'),
    );
});

describeIf(all(xdpPrivilege(), programPrivilege('ip')), 'the xdp link', () => {
  beforeAll(() => vethPair(['lke0', 'lke1'], 198, 1500));
  afterAll(() => void sh('ip link del lke0'));
  const program = () => attachedProgram(Number(readFileSync('/sys/class/net/lke0/ifindex')));

  test.each([
    ['inline', 'terminate'],
    ['inline', 'process.exit'],
    ['worker', 'terminate'],
  ] as const)('its program and all that belongs to it: mode %s, %s', async (mode, how) => {
    const before = xdpParts();
    await thread(
      `const { openDevice } = await import('${INDEX}');
      await openDevice({ link: 'xdp', mode: '${mode}', interface: 'lke0', memoryBytes: 16 * 2 ** 20 });
      return 'open';`,
      how,
      (answer) => {
        expect(answer).toBe('open');
        expect(program()).toBeDefined();
        expect(xdpParts().length).toBeGreaterThan(before.length);
      },
    );
    expect(xdpParts()).toEqual(before);
    await expect.poll(program, { timeout: 10_000 }).toBeUndefined();
  });
});
