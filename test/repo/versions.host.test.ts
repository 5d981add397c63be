// The packed package, installed into an empty folder, in each version of Node that README names.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installedNodes } from '../../scripts/setup/nodes.mjs';
import { all, netPrivilege, testIf } from '../kit/privileges.js';
import { type Installed, install } from './installed.js';
import { README_OUTPUT, readmePrograms } from './readme.js';
import { text } from './sources.js';

const nodes: Record<string, string> = {
  [process.versions.node.split('.')[0] as string]: process.execPath,
  ...installedNodes(),
};
const TESTED = ['20', '22', '24', '26'];

/** Two devices, and a message there and back: `node links.mjs LINK MODE`. */
const LINKS = `
import { openDevice } from 'wasm-roce';
const [, , link, mode] = process.argv;
const addresses = ['127.0.0.71', '127.0.0.72'];
const options = { link, mode, memoryBytes: 2 ** 26, ...(link === 'packet' && { interface: 'lo' }) };
const [a, b] = await Promise.all(addresses.map((address) => openDevice({ ...options, addresses: [address] })));
const server = await b.listen({ port: 7471 });
const serving = (async () => {
  for await (const request of server) {
    const connection = await request.accept();
    for await (const { data } of connection) await connection.send(data);
    await server.close();
  }
})();
const connection = await a.connect({ host: addresses[1], port: 7471 });
await connection.send(Buffer.from(link + ' ' + mode));
console.log(String((await connection.receive()).data));
await connection.close();
await serving;
for (const device of [a, b]) await device.close({ force: true });
`;

const REQUIRE = `
const { openDevice } = require('wasm-roce');
openDevice({ link: 'memory', addresses: ['10.0.0.1'] }).then(async (device) => {
  console.log(device.queryPort().state);
  await device.close();
});
`;

let installed: Installed;
beforeAll(async () => {
  installed = await install();
  writeFileSync(join(installed.folder, 'links.mjs'), LINKS);
  writeFileSync(join(installed.folder, 'require.cjs'), REQUIRE);
  for (const [i, program] of readmePrograms().entries()) {
    writeFileSync(join(installed.folder, `readme-${i}.mjs`), program);
  }
}, 120_000);
afterAll(() => installed?.remove());

test('README and package.json name the versions that are tested', () => {
  expect(text('README.md')).toContain(`tested with Node ${TESTED.slice(0, -1).join(', ')} and ${TESTED.at(-1)}`);
});

describe.each(TESTED)('Node %s', (major) => {
  const node = nodes[major] ?? '';
  const present = { ok: node !== '', reason: `Node ${major} is not installed: npm test installs it` };

  async function run(...args: string[]): Promise<string> {
    const { stdout, stderr } = await promisify(execFile)(node, args, { cwd: installed.folder, timeout: 60_000 });
    expect(stderr).toBe('');
    return stdout;
  }
  const command = (...args: string[]) => run(join(installed.package, 'dist/cli/main.js'), ...args);

  testIf(present, 'is the version that it says', async () => {
    expect((await run('-p', 'process.versions.node')).split('.')[0]).toBe(major);
  });

  testIf(present, 'runs the programs of README', async () => {
    for (const [i, output] of README_OUTPUT.entries()) expect(await run(`readme-${i}.mjs`)).toBe(output);
  });

  testIf(present, 'loads it with require, without a warning', async () => {
    expect(await run('require.cjs')).toBe('ACTIVE\n');
  });

  testIf(present, 'sends over the memory link', async () => {
    expect(await run('links.mjs', 'memory', 'inline')).toBe('memory inline\n');
  });

  for (const link of ['udp', 'packet']) {
    for (const mode of ['inline', 'worker']) {
      testIf(all(present, netPrivilege()), `sends over the ${link} link, mode ${mode}`, async () => {
        expect(await run('links.mjs', link, mode)).toBe(`${link} ${mode}\n`);
      });
    }
  }

  testIf(present, 'has the commands', async () => {
    expect(await command('--help')).toContain('Usage: wasm-roce');
    expect(JSON.parse(await command('devinfo', '--json'))).toBeTruthy();
    expect(JSON.parse(await command('demo', '--link', 'memory', '--json')).ok).toBe(true);
  });
});
