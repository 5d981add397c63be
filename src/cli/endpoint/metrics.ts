/** Serves counters to Prometheus over HTTP. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { prometheusText } from '../stat/prometheus.js';
import type { EndpointDevices } from './devices.js';
import type { Log } from './log.js';
import type { MetricsConfig } from './schema.js';
import type { Service } from './service.js';

/** Opens the HTTP server. @throws the system's error, mostly EADDRINUSE */
export async function openMetrics(devices: EndpointDevices, { host, port }: MetricsConfig, log: Log): Promise<Service> {
  const server = createServer(({ method, url }, response) => {
    if (method !== 'GET' || url !== '/metrics') {
      response.writeHead(404).end('not found: only /metrics is served\n');
      return;
    }
    const states = devices.all().map((device) => ({ name: device.label, pid: process.pid, ...device.stat() }));
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' });
    response.end(prometheusText(states));
  });
  server.listen({ host, port });
  await once(server, 'listening');
  const about = { service: 'metrics', url: `http://${host.includes(':') ? `[${host}]` : host}:${port}/metrics` };
  server.on('error', (error) => log.error('not accepted', error, about));
  return {
    about,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
