/** What the examples have in common: their command line, and the device that it names. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
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
  --link packet|udp|xdp  what carries the frames; udp needs no privileges
  --interface NAME       network interface of the device
  --address IP           local address; with two of them (127.0.0.1, 127.0.0.2) both ends run on one host
  --port N               port of the server; default 7471
  --demo                 all parts in this process, on the memory link
`;

/**
 * Runs an example as its command line says. Errors end it with status 1, wrong usage with 2.
 * @param {{ help: string, options?: object, main: (words: string[], values: any) => Promise<void>, demo: (values: any, words: string[]) => Promise<void> }} example
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
 * The device for a server; for a client the one that the way to its server leads through, unless the command line says which.
 * @param {{ link?: string, interface?: string, address?: string }} values
 */
export async function deviceFor({ link, interface: name, address }, host = undefined) {
  const local = address ?? (name === undefined && host !== undefined ? await addressTowards(host) : undefined);
  return openDevice({
    ...(link && { link }),
    ...(name && { interface: name }),
    ...(local && { addresses: [local] }),
  });
}

/** Devices of this process that can talk to each other, and the first one's address. */
export async function demoDevices(count) {
  const hub = createMemoryHub();
  const devices = [];
  for (let i = 0; i < count; i++) devices.push(await openDevice({ hub }));
  return { devices, host: devices[0].gids[0].address };
}

/** Ctrl-C closes the server, and with it ends what waits for its clients. */
export function closeOnInterrupt(server) {
  process.once('SIGINT', () => void server.close());
}

/** The local address from which the kernel would send to a host. Nothing is sent. */
async function addressTowards(host) {
  const { address, family } = await lookup(host);
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4');
  try {
    await new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.connect(4791, address, (error) => (error ? reject(error) : resolve()));
    });
    return socket.address().address;
  } finally {
    socket.close();
  }
}
