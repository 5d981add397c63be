// Names and messages from the network reach terminals and logs without the characters that control them.
import { PassThrough } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { printable, printableJson, printableText } from '../../src/base/printable.js';
import { Log } from '../../src/cli/endpoint/log.js';
import { Output, styled } from '../../src/cli/output.js';
import { describe as describeDevice } from '../../src/cli/stat/table.js';
import { openDevice } from '../../src/index.js';
import { createTarget, type NvmeTarget } from '../../src/nvme.js';
import { MemoryStorage } from '../protocols/nvme/memorystorage.js';
import { loopback } from '../verbs/pair.js';
import { run } from './run.js';

/** rdma_cm port of the service regions. */
const REGIONS_PORT = 7472;
const HOSTILE = 'nqn.\u001b]0;PWNED\u0007\u001b[2J\u001b[31m\u009b2J\u202e all fine\nforged line\u2028';
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;

test.each([
  ['\u001b[31m', '\\x1b[31m'],
  ['a\nb\tc\r', 'a\\x0ab\\x09c\\x0d'],
  ['\u007f\u0085\u009b', '\\x7f\\x85\\x9b'],
  ['\u202eabc\u2066', '\\u202eabc\\u2066'],
  ['\u2028\ufeff', '\\u2028\\ufeff'],
  ['\u{e0001}', '\\u{e0001}'],
  ['näme – 名 🙂', 'näme – 名 🙂'],
])('printable shows %j as %s', (text, shown) => {
  expect(printable(text)).toBe(shown);
});

test('printableText keeps lines and tabs, and no other control characters', () => {
  expect(printableText('a\n\tb\u001b[0m')).toBe('a\n\tb\\x1b[0m');
});

test('printableJson escapes control characters, and parses to the same value', () => {
  const value = { name: HOSTILE, emoji: '\u{e0001}🙂' };
  expect(JSON.parse(printableJson(value))).toEqual(value);
  expect(printableJson(value)).not.toMatch(CONTROL);
});

describe('a command prints no control characters of others', () => {
  function stream(isTTY = false) {
    const out = Object.assign(new PassThrough(), { isTTY, hasColors: () => isTTY, columns: 200 });
    return { out: out as unknown as NodeJS.WriteStream, text: () => String((out as PassThrough).read() ?? '') };
  }

  test.each([true, false])('lines, notes and progress keep the colours of styled alone (terminal: %s)', (tty) => {
    const [stdout, stderr] = [stream(tty), stream(true)];
    const output = new Output(false, stdout.out, stderr.out);
    output.line(`${styled('red', 'fails', stdout.out)} ${HOSTILE}`);
    output.note(HOSTILE);
    output.progress(() => HOSTILE);
    const [shown, noted] = [stdout.text(), stderr.text()];
    // the foreign colour is one of ours, and does nothing worse
    const red = '\u001b[31m';
    expect(shown.replaceAll(red, '').replaceAll('\u001b[39m', '')).not.toMatch(CONTROL);
    expect(noted.replaceAll(red, '')).not.toMatch(CONTROL);
    if (!tty) expect(shown).not.toContain('\u001b');
  });

  test('a result as JSON escapes them', () => {
    const stdout = stream();
    new Output(true, stdout.out, stream().out).result({ name: HOSTILE });
    const text = stdout.text();
    expect(text.trimEnd()).not.toMatch(CONTROL);
    expect(JSON.parse(text)).toEqual({ name: HOSTILE });
  });

  test.each(['text', 'json'] as const)(
    'the log of an endpoint escapes them, and has one line for each event (%s)',
    (form) => {
      const out = stream();
      const log = new Log(form, out.out);
      log.error('client', new Error(HOSTILE), { name: HOSTILE, esc: '\u001b[2J', c1: '\u009b2J' });
      const text = out.text();
      expect(text.split('\n').length).toBe(2);
      expect(text.trimEnd()).not.toMatch(CONTROL);
    },
  );

  test('stat escapes them in the name and the command of a device of another process', () => {
    const device = {
      name: HOSTILE,
      command: HOSTILE,
      pid: 1,
      link: 'udp',
      interface: 'lo',
      state: 'up',
      addresses: [],
      qps: [],
      counters: {},
    };
    expect(describeDevice(device as never, { all: false })).not.toMatch(CONTROL);
  });

  test('get escapes them in the names of the regions of an endpoint, in one line', async () => {
    await using device = await openDevice(loopback());
    const server = await device.listen({ port: REGIONS_PORT });
    const region = { name: HOSTILE, addr: 0, rkey: 1, length: 1, access: [] };
    server.on('connection', (connection) => {
      connection.send(Buffer.from(JSON.stringify([region]))).catch(() => {});
    });
    const [host, own] = [device.gids[0]?.address as string, loopback().addresses[0] as string];
    const { stderr, status } = await run(['get', host, 'table', '--link', 'udp', '-d', 'lo', '--address', own]);
    expect(status).toBe(1);
    expect(stderr.trimEnd()).not.toMatch(CONTROL);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(stderr).toContain('regions: nqn.\\x1b]0;PWNED');
    await server.close();
  });
});

describe('a target whose subsystem has such a name', () => {
  let target: NvmeTarget | undefined;
  afterEach(() => target?.close());

  test('nvme discover shows the name in one line', async () => {
    await using device = await openDevice(loopback());
    const host = device.gids[0]?.address as string;
    const namespaces = [{ storage: new MemoryStorage(4096) }];
    target = await createTarget({ device, subsystems: [{ nqn: HOSTILE, namespaces }] });
    const own = loopback().addresses[0] as string;
    const { stdout, status } = await run(['nvme', 'discover', host, '--link', 'udp', '-d', 'lo', '--address', own]);
    expect(status).toBe(0);
    expect(stdout.trimEnd()).not.toMatch(CONTROL);
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
    expect(stdout).toContain('nqn.\\x1b]0;PWNED');
    await target.close();
    target = undefined;
  });
});
