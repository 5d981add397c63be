/**
 * A rank as a process of its own, for processes.host.test.ts: combines arrays until a rank fails, and says which one.
 * Arguments: rank, size, address of each rank without its last byte, port, mode of the device, thread that combines.
 * BUSY_MS: rank 0 does nothing else for so long while the others join.
 */
import { openDevice } from 'wasm-roce';
import { openCommunicator } from 'wasm-roce/collective';

const [rank, size, network, port, mode, reduceThread] = process.argv.slice(2);
const own = `${network}.${Number(rank) + 1}`;
const device = await openDevice({ link: 'udp', addresses: [own], mode });
// the others connect meanwhile, and give up and connect again
const busyMs = Number(process.env.BUSY_MS ?? 0);
if (rank === '0' && busyMs > 0)
  setTimeout(() => {
    console.log('busy');
    for (const end = Date.now() + busyMs; Date.now() < end; );
  }, 500);
const communicator = await openCommunicator({
  ...{ rank: Number(rank), size: Number(size), host: `${network}.1`, port: Number(port) },
  ...{ device, reduceThread },
});
try {
  for (let call = 0; ; call++) {
    const array = new Float64Array(500_000).fill(Number(rank) + call);
    await communicator.allReduce(array);
    const expected = (Number(size) * (Number(size) - 1)) / 2 + Number(size) * call;
    if (!array.every((value) => value === expected)) throw new Error(`call ${call} gave a wrong sum`);
    if (call === 3) console.log('running');
  }
} catch (error) {
  console.log(JSON.stringify({ name: error.name, rank: error.rank, code: error.code, message: error.message }));
}
await communicator.close();
await device.close();
