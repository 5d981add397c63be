/** Communication over TCP, which the stock programs use without `-R` and `-z`. */
import type { Device } from '../../../index.js';
import { isDeviceNamed, openForAddress, openNamed } from '../../device.js';
import { TcpChannel } from '../../tcpchannel.js';
import { TcpListener } from '../../tcplistener.js';
import type { PerftestOptions } from '../parameters.js';
import { Handshake, type RunTest } from './handshake.js';
import { TEXT_KEYS } from './keys.js';

/** Connects to a server and runs a test. @throws CliError when nobody answers; as `openDevice` */
export async function connectByTcp(host: string, options: PerftestOptions, runTest: RunTest): Promise<void> {
  const { port, address } = options;
  const target = { host, port, ...(address !== undefined && { localAddress: address }) };
  const channel = await TcpChannel.connect(target, options.idleMs);
  try {
    await using device = await openForAddress(channel.localAddress, options);
    await runTest({
      device,
      handshake: new Handshake(channel, 'client', TEXT_KEYS),
      peer: { address: channel.remoteAddress, port },
    });
  } finally {
    channel.close();
  }
}

/** Serves one client. @param onListening called with the port, in words */
export async function serveByTcp(options: PerftestOptions, onListening: (where: string) => void, runTest: RunTest) {
  const { port, address, idleMs } = options;
  const listener = await TcpListener.open({ port, ...(address !== undefined && { host: address }) }, idleMs);
  onListening(`TCP port ${port}`);
  let device: Device | undefined;
  try {
    // Report an interface that cannot be used before a client comes.
    if (isDeviceNamed(options)) device = await openNamed(options);
    const channel = await listener.accept();
    // A second client gives up at once.
    listener.close();
    try {
      device ??= await openForAddress(channel.localAddress, options);
      await runTest({
        device,
        handshake: new Handshake(channel, 'server', TEXT_KEYS),
        peer: { address: channel.remoteAddress, port },
      });
    } finally {
      channel.close();
    }
  } finally {
    listener.close();
    await device?.close({ force: true });
  }
}
