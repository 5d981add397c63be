/** The program of one end, started in its namespace and on its CPU; its argument says which. */
import { serve } from './calls.js';

const KINDS = {
  rdma: async () => new (await import('./rdma.js')).RdmaEnd(),
  net: async () => new (await import('./net.js')).NetEnd(),
  dgram: async () => new (await import('./dgram.js')).DgramEnd(),
  connect: async () => new (await import('./connect.js')).ConnectEnd(),
  card: async () => new (await import('./card.js')).CardEnds(),
  scale: async () => new (await import('./scale.js')).ScaleEnds(),
  sums: async () => new (await import('./sums.js')).SumsEnd(),
};

serve(await KINDS[process.argv[2] as keyof typeof KINDS]());
