// The default exports of the subpaths that imitate Node: `import net from 'node:net'` has the same names.
import nodeDgram from 'node:dgram';
import nodeNet from 'node:net';
import { expect, test } from 'vitest';
import dgram, * as dgramExports from '../../../src/dgram.js';
import net, * as netExports from '../../../src/net.js';

test.each([
  ['net', net, netExports, nodeNet],
  ['dgram', dgram, dgramExports, nodeDgram],
])(
  'the default export of %s has the functions and classes that its named exports share with Node',
  (_, all, named, node) => {
    const { default: __, ...own } = named as Record<string, unknown>;
    const shared = Object.keys(own).filter((name) => name in node);
    expect(shared.length).toBeGreaterThan(1);
    expect(Object.entries(all).sort()).toEqual(shared.sort().map((name) => [name, own[name]]));
  },
);
