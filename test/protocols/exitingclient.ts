/**
 * A program with connections to the servers of a test, a socket and a connection with messages for each `count`. It
 * prints one line of JSON with the signals that it listens to, and ends at a line of input, in the way that its options
 * name.
 *
 * Argument: `ExitingOptions` as JSON
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { parentPort, Worker } from 'node:worker_threads';
import { openDevice } from '../../src/index.js';
import { connect } from '../../src/net.js';
import type { ExitingOptions, Way } from './exitways.js';

/** Ends the program, or the thread, in the given way. */
function end(way: Way): void {
  switch (way) {
    case 'process.exit':
      process.exit(3);
      break;
    case 'an exception':
      throw new Error('as wanted');
    case 'process.exit in a listener of SIGTERM':
      process.once('SIGTERM', () => process.exit(4));
      process.kill(process.pid, 'SIGTERM');
      break;
    case 'the end of the event loop':
      break;
    default:
      if (way.startsWith('SIG')) process.kill(process.pid, way.split(' ')[0]);
  }
}

async function run(options: ExitingOptions): Promise<void> {
  const { link, mode, address, host, netPort, messagePort, count, way } = options;
  const isEndless = way !== 'the end of the event loop';
  if (way === 'SIGTERM after its listener was removed') {
    const listener = () => {};
    process.on('SIGTERM', listener);
    process.off('SIGTERM', listener);
  }
  const device = await openDevice({ link, mode, addresses: [address], keepAlive: isEndless });
  for (let i = 0; i < count; i++) {
    const socket = connect({ device, host, port: netPort });
    await once(socket, 'connect');
    socket.write('hello');
    await once(socket, 'data');
    if (!isEndless) socket.unref();
    const connection = await device.connect({ host, port: messagePort });
    if (!isEndless) connection.unref();
  }
}

const options = JSON.parse(process.argv[2] as string) as ExitingOptions;
const { way } = options;
if (process.argv[3] === 'thread') {
  await run(options);
  parentPort?.once('message', () => process.exit(0)).postMessage('ready');
} else {
  let endThread = async () => {};
  if (way.startsWith('a thread')) {
    // Node.js 20 does not load TypeScript in a thread by the loader of the main thread
    const load = `import('tsx/esm/api').then(({ tsImport }) => tsImport('${import.meta.url}', '${import.meta.url}'))`;
    const worker = new Worker(load, { eval: true, argv: [process.argv[2] as string, 'thread'] });
    await once(worker, 'message');
    endThread = async () => {
      const ended = once(worker, 'exit');
      if (way === 'a thread that ends') worker.postMessage('end');
      else void worker.terminate();
      await ended;
    };
  } else await run(options);
  // a child process neither disconnects nor is disturbed
  execFileSync('true');
  const listened = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'].filter((name) => process.listenerCount(name) > 0);
  process.stdout.write(`${JSON.stringify(listened)}\n`);
  await once(process.stdin, 'data');
  process.stdin.destroy();
  await endThread();
  end(way);
}
