/** Shared by the examples: their command line, and the device that it names. */
import { parseArgs } from 'node:util';
import { createMemoryHub, openDevice } from 'wasm-roce';

const COMMON = {
  link: { type: 'string' },
  interface: { type: 'string' },
  address: { type: 'string' },
  port: { type: 'string', default: '7471' },
  demo: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
};

export const COMMON_HELP = `
  --link packet|udp|xdp  link that carries the frames; udp needs no privileges
  --interface NAME       network interface of the device
  --address IP           local address; on one host give each end its own (127.0.0.1, 127.0.0.2)
  --port N               port of the server; default 7471
  --demo                 run all parts in this process, on the memory link
`;

/**
 * Runs an example. It exits with status 1 after an error, and with 2 after wrong usage.
 * @param {object} example
 * @param {string} example.help
 * @param {object} [example.options]
 * @param {(words: string[], values: any) => Promise<void>} example.main
 * @param {(values: any, words: string[]) => Promise<void>} example.demo
 */
export async function run({ help, options = {}, main, demo }) {
  let words;
  let values;
  try {
    ({ positionals: words, values } = parseArgs({ options: { ...COMMON, ...options }, allowPositionals: true }));
  } catch (error) {
    console.error(`${error.message}\n${help}`);
    process.exitCode = 2;
    return;
  }
  if (values.help) {
    console.log(help);
    return;
  }
  try {
    if (values.demo) await demo(values, words);
    else await main(words, values);
  } catch (error) {
    const [first] = String(error?.message ?? error).split('\n');
    console.error(error instanceof UsageError ? `${first}\n${help}` : first);
    process.exitCode = error instanceof UsageError ? 2 : 1;
  }
}

export class UsageError extends Error {}

/**
 * Opens the device for a server, or for a client of `host`. Without --interface and --address a client uses the
 * interface by which its server is reached.
 * @param {{ link?: string, interface?: string, address?: string }} values
 */
export async function deviceFor({ link, interface: name, address }, host = undefined) {
  return openDevice({
    ...(link && { link }),
    ...(name && { interface: name }),
    ...(address && { addresses: [address] }),
    ...(host && { peer: host }),
  });
}

/** Opens devices in this process, connected by the memory link. Also returns the address of the first one. */
export async function demoDevices(count) {
  const hub = createMemoryHub();
  const devices = [];
  for (let i = 0; i < count; i++) devices.push(await openDevice({ hub }));
  return { devices, host: devices[0].gids[0].address };
}

/** Closes the server at Ctrl-C, which ends the loop that waits for its clients. */
export function closeOnInterrupt(server) {
  process.once('SIGINT', () => void server.close());
}
