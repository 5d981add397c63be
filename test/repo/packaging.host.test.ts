/** The files in packaging, as far as they can be checked without systemd and without a container engine. */
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { testIf } from '../kit/privileges.js';
import { ROOT, text } from './sources.js';

const run = promisify(execFile);
const MAIN = join(ROOT, 'dist/cli/main.js');
const built = { ok: existsSync(MAIN), reason: 'dist is not built: npm run build' };
const compose = parse(text('packaging/compose.yaml'), { merge: true });

describe('the container', () => {
  test('gets the packed tarball and a configuration, and nothing that was built on the host', () => {
    const lines = text('.dockerignore').split('\n');
    const rules = lines.filter((line) => line !== '' && !line.startsWith('#'));
    expect(rules).toEqual(['*', '!wasm-roce-*.tgz', '!packaging/endpoint.yaml']);
    const copied = text('packaging/Containerfile').matchAll(/^COPY (\S+) /gm);
    expect(Array.from(copied, ([, path]) => `!${path}`)).toEqual(rules.slice(1));
  });

  test('runs as a user, on a slim image', () => {
    const file = text('packaging/Containerfile');
    expect(file).toMatch(/^FROM \S+-slim$/m);
    expect(file).toMatch(/^USER node$/m);
    expect(file.indexOf('USER node')).toBeGreaterThan(file.lastIndexOf('RUN '));
  });
});

describe('the compose file', () => {
  test('has an endpoint, a client and Prometheus; ours have no capabilities and write to volumes only', () => {
    expect(Object.keys(compose.services)).toEqual(['endpoint', 'client', 'prometheus']);
    for (const name of ['endpoint', 'client'])
      expect(compose.services[name]).toMatchObject({ image: 'wasm-roce', cap_drop: ['ALL'], read_only: true });
    expect(join('packaging', compose.services.endpoint.build.context)).toBe('.');
    expect(existsSync(join(ROOT, compose.services.endpoint.build.dockerfile))).toBe(true);
  });

  test('names volumes, configurations and services that exist', () => {
    for (const service of Object.values<Record<string, never>>(compose.services)) {
      const { depends_on = [], configs = [], volumes = [] } = service as Record<string, never[]>;
      for (const name of depends_on) expect(Object.keys(compose.services)).toContain(name);
      for (const { source } of configs) expect(Object.keys(compose.configs)).toContain(source);
      for (const volume of volumes) expect(Object.keys(compose.volumes)).toContain(String(volume).split(':')[0]);
    }
  });

  test('lets Prometheus ask where the endpoint answers', () => {
    const { metrics } = JSON.parse(compose.configs.endpoint.content);
    const { scrape_configs } = parse(compose.configs.prometheus.content);
    expect(scrape_configs[0].static_configs[0].targets).toEqual([`endpoint:${metrics.port}`]);
    expect(metrics.host).toBe('0.0.0.0');
  });

  testIf(built, 'gives the endpoint a configuration that it accepts', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-compose-'));
    const file = join(folder, 'endpoint.json');
    writeFileSync(file, compose.configs.endpoint.content);
    try {
      const [command, , ...options] = compose.services.endpoint.command;
      await run(process.execPath, [MAIN, command, file, ...options, '--check']);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  testIf(built, 'gives the client options that it knows', async () => {
    const { stdout } = await run(process.execPath, [MAIN, ...compose.services.client.command, '--help']);
    for (const option of compose.services.client.command.filter((each: string) => each.startsWith('--')))
      expect(stdout).toContain(option);
  });
});
