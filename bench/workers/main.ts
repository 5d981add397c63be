/** The program of one end, started in its namespace and on its CPU. Its argument selects the worker. */
import { serve } from './calls.js';

const KINDS = {
  rdma: async () => new (await import('./rdma.js')).RdmaEnd(),
  net: () => streamEnd('tcpWay'),
  netOnread: () => streamEnd('tcpWay', true),
  rsocket: () => streamEnd('rsocketWay'),
  rsocketOnread: () => streamEnd('rsocketWay', true),
  stream: () => streamEnd('connectionWay'),
  dgram: async () => new (await import('./dgram.js')).DgramEnd(),
  connect: async () => new (await import('./connect.js')).ConnectEnd(),
  card: async () => new (await import('./card.js')).CardEnds(),
  scale: async () => new (await import('./scale.js')).ScaleEnds(),
  footprint: async () => new (await import('./footprint.js')).FootprintEnds(),
  rpc: () => callEnd('RpcWay'),
  grpc: () => callEnd('GrpcWay'),
  connectrpc: () => callEnd('ConnectWay'),
  netcalls: () => callEnd('NetWay'),
  communicator: async () => new (await import('./collective.js')).CommunicatorRank(),
  tcpring: () => ringRank('TcpRing'),
  grpcring: () => ringRank('GrpcRing'),
  crc: async () => new (await import('./crc.js')).CrcEnd(),
};

async function streamEnd(way: 'tcpWay' | 'rsocketWay' | 'connectionWay', isOnread = false) {
  return new (await import('./stream.js')).StreamEnd((await import('./ways.js'))[way](isOnread));
}

async function callEnd(way: 'RpcWay' | 'ConnectWay' | 'GrpcWay' | 'NetWay') {
  return new (await import('./call.js')).CallEnd(new (await import('./callways.js'))[way]());
}

async function ringRank(ring: 'TcpRing' | 'GrpcRing') {
  const rings = await import('./collective.js');
  return new rings.RingRank(new rings[ring]());
}

serve(await KINDS[process.argv[2] as keyof typeof KINDS]());
