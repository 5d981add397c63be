/** Reads the configuration of an endpoint from a file and options, and checks it before anything is opened. */
import { readFile } from 'node:fs/promises';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { isWildcard } from '../../base/address.js';
import { CliError, Exit } from '../exit.js';
import { diskProblem } from '../nvme/disks.js';
import { memoryProblems } from './memory.js';
import { fileProblem } from './regions.js';
import {
  type Config,
  Configuration,
  isMap,
  METRICS_HOST,
  Namespace,
  PERFTESTS,
  PORTS,
  Region,
  type RegionConfig,
} from './schema.js';

/** The options: single keys override those of the file, regions and services are added to it. */
export type ConfigOverrides = Readonly<Record<string, unknown>> & {
  readonly regions: Readonly<Record<string, unknown>>;
  readonly services: readonly unknown[];
};

/** All problems of a configuration. */
export class ConfigError extends CliError {
  readonly problems: readonly string[];

  /** @param unavailable tells of things that this machine lacks, although the configuration may be right */
  constructor(source: string, wrong: readonly string[], unavailable: readonly string[] = []) {
    const problems = [...wrong, ...unavailable];
    const message = problems.length === 1 ? `${source}: ${problems[0]}` : `${source}: ${problems.length} errors`;
    super(wrong.length > 0 ? Exit.USAGE : Exit.ENVIRONMENT, message);
    this.problems = problems;
  }
}

/**
 * Reads and checks a configuration.
 * @param file YAML, which includes JSON; undefined: options only
 * @throws ConfigError; the system's error when the file cannot be read
 */
export async function readConfig(file: string | undefined, overrides: ConfigOverrides): Promise<Config> {
  const raw = file === undefined ? {} : parseFile(file, await readFile(file, 'utf8'));
  return checkConfig(file ?? 'options', isMap(raw) ? applyOverrides(raw, overrides) : raw);
}

function parseFile(file: string, text: string): unknown {
  const document = parseDocument(text);
  if (document.errors.length > 0)
    throw new ConfigError(
      file,
      document.errors.map(({ message }) => (message.split('\n')[0] as string).replace(/:$/, '')),
    );
  return document.toJS() ?? {};
}

function applyOverrides(raw: Readonly<Record<string, unknown>>, { regions, services, ...single }: ConfigOverrides) {
  return {
    ...raw,
    ...single,
    ...(Object.keys(regions).length > 0 && { regions: isMap(raw.regions) ? { ...raw.regions, ...regions } : regions }),
    ...(services.length > 0 && { services: Array.isArray(raw.services) ? [...raw.services, ...services] : services }),
  };
}

/** Checks a configuration. @throws ConfigError with all its problems */
export function checkConfig(source: string, raw: unknown): Config {
  const { success, data, error } = Configuration.safeParse(raw);
  const { regions, unavailable: regionFiles } = checkRegions(raw);
  const unavailable = [...regionFiles, ...namespaceFiles(raw)];
  const { data: memory } = Configuration.shape.memory.safeParse(isMap(raw) ? raw.memory : undefined);
  const wrong = [
    ...(error?.issues.flatMap((issue) => issueProblems(issue, raw)) ?? []),
    ...portConflicts(raw),
    ...memoryProblems({ regions, memory }),
  ];
  if (!success || wrong.length + unavailable.length > 0) throw new ConfigError(source, wrong, unavailable);
  return data;
}

/** Describes an issue by key, value and rule. */
function issueProblems(issue: z.core.$ZodIssue, raw: unknown): string[] {
  const { message, path } = issue;
  if (issue.code === 'invalid_key') return [`${z.core.toDotPath(path)} ${issue.issues[0]?.message}`];
  const paths = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...path, key]) : [path];
  return paths.map((at) => {
    const found = at.reduce<unknown>((inside, key) => (inside as Record<PropertyKey, unknown> | undefined)?.[key], raw);
    const where = at.length > 0 ? `${z.core.toDotPath(at)} is` : 'it is';
    return found === undefined ? `${where} missing, ${message}` : `${where} ${JSON.stringify(found)}, ${message}`;
  });
}

/** Returns the valid regions, and what keeps others from being opened on this machine. */
function checkRegions(raw: unknown): { regions: Record<string, RegionConfig>; unavailable: string[] } {
  const regions: Record<string, RegionConfig> = {};
  const unavailable: string[] = [];
  for (const [name, region] of Object.entries(isMap(raw) && isMap(raw.regions) ? raw.regions : {})) {
    const { data } = Region.safeParse(region);
    const why = data && fileProblem(data);
    if (why !== undefined)
      unavailable.push(`${z.core.toDotPath(['regions', name, 'file'])} is ${JSON.stringify(data?.file)}, ${why}`);
    else if (data) regions[name] = data;
  }
  return { regions, unavailable };
}

/** Returns what keeps files of namespaces from being served on this machine. */
function namespaceFiles(raw: unknown): string[] {
  const services = isMap(raw) && Array.isArray(raw.services) ? raw.services : [];
  return services.flatMap((service, i) =>
    Object.entries(isMap(service) && isMap(service.namespaces) ? service.namespaces : {}).flatMap(
      ([name, namespace]) => {
        const { data } = Namespace.safeParse(namespace);
        const why = data && diskProblem(data);
        const path = z.core.toDotPath(['services', i, 'namespaces', name, 'file']);
        return why === undefined ? [] : [`${path} is ${JSON.stringify(data?.file)}, ${why}`];
      },
    ),
  );
}

/** A port in use. An invalid number (NaN) conflicts with no other. */
interface PortUse {
  readonly type: unknown;
  readonly kind: 'rdma_cm' | 'TCP';
  readonly port: number;
  readonly host?: unknown;
}

/** Finds services that use the same port. Works on the unchecked input, so that all problems are reported together. */
function portConflicts(raw: unknown): string[] {
  const uses = isMap(raw) ? portUses(raw) : [];
  return uses.flatMap(({ type, kind, port, host }, i) => {
    const meets = (other: PortUse) => isWildcard(host) || isWildcard(other.host) || other.host === host;
    const other = uses.slice(0, i).find((other) => other.kind === kind && other.port === port && meets(other));
    return other === undefined ? [] : [`services: ${type} uses ${kind} port ${port}, which ${other.type} uses already`];
  });
}

function portUses({ addresses, services, metrics }: Readonly<Record<string, unknown>>): PortUse[] {
  const host = Array.isArray(addresses) ? listenHost(addresses) : undefined;
  const uses = (Array.isArray(services) ? services.filter(isMap) : []).map(({ type, port }): PortUse => {
    const isPerftest = PERFTESTS.includes(String(type));
    if (isPerftest) return { type, kind: 'TCP', port: Number(port ?? PORTS.perftest), host };
    return { type, kind: 'rdma_cm', port: Number(port ?? PORTS[type as keyof typeof PORTS]) };
  });
  if (!isMap(metrics)) return uses;
  const { port, host: metricsHost = METRICS_HOST } = metrics;
  return [...uses, { type: 'metrics', kind: 'TCP', port: Number(port), host: metricsHost }];
}

/** The address on which TCP services listen; undefined: all. */
export function listenHost<T>(addresses: readonly T[] = []): T | undefined {
  return addresses.length === 1 ? addresses[0] : undefined;
}
