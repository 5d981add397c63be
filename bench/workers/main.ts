/** The program of one end, started in its namespace and on its CPU. Its argument selects the worker. */
import { serve } from './calls.js';

const KINDS = {
  rdma: async () => new (await import('./rdma.js')).RdmaEnd(),
  net: () => streamEnd('tcpWay'),
  rsocket: () => streamEnd('rsocketWay'),
  stream: () => streamEnd('connectionWay'),
  dgram: async () => new (await import('./dgram.js')).DgramEnd(),
  connect: async () => new (await import('./connect.js')).ConnectEnd(),
  card: async () => new (await import('./card.js')).CardEnds(),
  scale: async () => new (await import('./scale.js')).ScaleEnds(),
  footprint: async () => new (await import('./footprint.js')).FootprintEnds(),
  crc: async () => new (await import('./crc.js')).CrcEnd(),
};

async function streamEnd(way: 'tcpWay' | 'rsocketWay' | 'connectionWay') {
  return new (await import('./stream.js')).StreamEnd((await import('./ways.js'))[way]());
}

serve(await KINDS[process.argv[2] as keyof typeof KINDS]());
