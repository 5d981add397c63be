/** What an endpoint is to be: read from a file and from options, and checked as a whole before anything is opened. */
import { readFile } from 'node:fs/promises';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { CliError, Exit } from '../exit.js';
import { address, bytes, integer, quantity } from '../options.js';
import { KINDS } from '../perftest/kinds.js';
import { shortage } from './memory.js';
import { obstacle } from './regions.js';

/** Rights that a peer may have to a region. */
const RIGHTS = ['remoteRead', 'remoteWrite', 'remoteAtomic'] as const;
/** Where each service listens unless told otherwise. */
export const PORTS = { echo: 7471, regions: 7472, rping: 7174, perftest: 18515 } as const;
const METRICS_HOST = '127.0.0.1';
const MOST_MESSAGE = 2 ** 30;
const MOST_REGION = 2 ** 32 - 1;

/** A number or text that an option's parser takes, with that parser's rule. */
function value<T>(parse: (text: string) => T) {
  return z.unknown().transform((input, context): T => {
    try {
      return parse(typeof input === 'number' || typeof input === 'string' ? String(input) : '');
    } catch (error) {
      context.issues.push({ code: 'custom', input, message: ruleOf(error as Error) });
      return z.NEVER;
    }
  });
}

/** `It must be this.` in the middle of a sentence. */
const ruleOf = ({ message }: Error) => message.replace(/^It /, '').replace(/\.$/, '');

function oneOf<const T extends readonly string[]>(names: T) {
  return z.enum(names, { error: `must be ${names.length > 1 ? 'one of ' : ''}${names.join(', ')}` });
}

/** A map that knows its keys. */
function keys<Shape extends z.ZodRawShape>(shape: Shape) {
  const names = Object.keys(shape).join(', ');
  return z.strictObject(shape, {
    error: ({ code }) =>
      code === 'unrecognized_keys' ? `which is no key here; there are ${names}` : `must be a map of ${names}`,
  });
}

const port = (standard: number) => value(integer(1, 65535)).default(standard);
const path = z.string({ error: 'must be the path of a file' }).min(1, { error: 'must be the path of a file' });

const Region = keys({
  size: value(bytes(1, MOST_REGION)).optional(),
  file: path.optional(),
  persist: z.boolean({ error: 'must be true or false' }).default(false),
  access: z
    .array(oneOf(RIGHTS), { error: `must be a list of ${RIGHTS.join(', ')}` })
    .min(1, { error: `must be a list of one or more of ${RIGHTS.join(', ')}` }),
})
  .refine(({ size, file }) => size !== undefined || file !== undefined, { error: 'must have a size or a file' })
  .refine(({ persist, file }) => !persist || file !== undefined, { error: 'must have a file to persist in' });

const PERFTESTS = KINDS.map(({ name }) => name);

const Service = z.discriminatedUnion(
  'type',
  [
    keys({
      type: z.literal('echo'),
      port: port(PORTS.echo),
      messageBytes: value(bytes(64, MOST_MESSAGE)).default(16_384),
    }),
    keys({ type: z.literal('regions'), port: port(PORTS.regions) }),
    keys({ type: z.literal('rping'), port: port(PORTS.rping) }),
    keys({
      type: z.enum(PERFTESTS),
      port: port(PORTS.perftest),
      size: value(bytes(1, MOST_MESSAGE)).optional(),
      iters: value(integer(2, 100_000_000)).optional(),
      qps: value(integer(1, 1024)).default(1),
    }),
  ],
  {
    error: ({ input }) =>
      isMap(input) ? `must be one of echo, regions, rping, ${PERFTESTS.join(', ')}` : 'must be a map with a type',
  },
);

const Configuration = keys({
  interface: z.string({ error: 'must be the name of a network interface' }).optional(),
  addresses: z.array(value(address), { error: 'must be a list of IP addresses' }).min(1).optional(),
  link: oneOf(['packet', 'udp', 'xdp']).optional(),
  mode: oneOf(['inline', 'worker']).optional(),
  spin: value(quantity(1e9)).optional(),
  memory: value(bytes(8 * 2 ** 20, 2 ** 32)).optional(),
  regions: z
    .record(z.string().regex(/^[\w.-]{1,64}$/, { error: 'must have a name of 1 to 64 of A-Z a-z 0-9 _ - .' }), Region, {
      error: 'must be a map of regions by name',
    })
    .default({}),
  services: z
    .array(Service, { error: 'must be a list of services' })
    .min(1, { error: 'must have one service at least' }),
  metrics: keys({ port: value(integer(1, 65535)), host: value(address).default(METRICS_HOST) }).optional(),
});

export type Config = z.output<typeof Configuration>;
export type RegionConfig = z.output<typeof Region>;
export type ServiceConfig = z.output<typeof Service>;
export type PerftestConfig = Extract<ServiceConfig, { qps: number }>;
export type MetricsConfig = NonNullable<Config['metrics']>;

/** What options say: single keys take the place of the file's, regions and services come to the file's. */
export type Given = Readonly<Record<string, unknown>> & {
  readonly regions: Readonly<Record<string, unknown>>;
  readonly services: readonly unknown[];
};

/** Everything that is wrong with a configuration. */
export class ConfigError extends CliError {
  readonly problems: readonly string[];

  /** @param lacking what it needs of this machine, which may be there another time */
  constructor(source: string, wrong: readonly string[], lacking: readonly string[] = []) {
    const problems = [...wrong, ...lacking];
    const message = problems.length === 1 ? `${source}: ${problems[0]}` : `${source}: ${problems.length} errors`;
    super(wrong.length > 0 ? Exit.USAGE : Exit.ENVIRONMENT, message);
    this.problems = problems;
  }
}

/**
 * @param file YAML, of which JSON is a part; undefined: there are options only
 * @throws ConfigError; the system's error when the file cannot be read
 */
export async function readConfig(file: string | undefined, given: Given): Promise<Config> {
  const raw = file === undefined ? {} : parseFile(file, await readFile(file, 'utf8'));
  return checked(file ?? 'options', isMap(raw) ? merged(raw, given) : raw);
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

function merged(raw: Readonly<Record<string, unknown>>, { regions, services, ...single }: Given) {
  return {
    ...raw,
    ...single,
    ...(Object.keys(regions).length > 0 && { regions: isMap(raw.regions) ? { ...raw.regions, ...regions } : regions }),
    ...(services.length > 0 && { services: Array.isArray(raw.services) ? [...raw.services, ...services] : services }),
  };
}

/** @throws ConfigError */
export function checked(source: string, raw: unknown): Config {
  const { success, data, error } = Configuration.safeParse(raw);
  const { regions, lacking } = regionsIn(raw);
  const { data: memory } = Configuration.shape.memory.safeParse(isMap(raw) ? raw.memory : undefined);
  const wrong = [
    ...(error?.issues.flatMap((issue) => problemsOf(issue, raw)) ?? []),
    ...clashes(raw),
    ...shortage({ regions, memory }),
  ];
  if (!success || wrong.length + lacking.length > 0) throw new ConfigError(source, wrong, lacking);
  return data;
}

/** Key, value and rule. */
function problemsOf(issue: z.core.$ZodIssue, raw: unknown): string[] {
  const { message, path } = issue;
  if (issue.code === 'invalid_key') return [`${z.core.toDotPath(path)} ${issue.issues[0]?.message}`];
  const paths = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...path, key]) : [path];
  return paths.map((at) => {
    const found = at.reduce<unknown>((inside, key) => (inside as Record<PropertyKey, unknown> | undefined)?.[key], raw);
    const where = at.length > 0 ? `${z.core.toDotPath(at)} is` : 'it is';
    return found === undefined ? `${where} missing, ${message}` : `${where} ${JSON.stringify(found)}, ${message}`;
  });
}

/** The regions that are right in themselves, and what keeps the others from being opened on this machine. */
function regionsIn(raw: unknown): { regions: Record<string, RegionConfig>; lacking: string[] } {
  const regions: Record<string, RegionConfig> = {};
  const lacking: string[] = [];
  for (const [name, region] of Object.entries(isMap(raw) && isMap(raw.regions) ? raw.regions : {})) {
    const { data } = Region.safeParse(region);
    const why = data && obstacle(data);
    if (why !== undefined)
      lacking.push(`${z.core.toDotPath(['regions', name, 'file'])} is ${JSON.stringify(data?.file)}, ${why}`);
    else if (data) regions[name] = data;
  }
  return { regions, lacking };
}

/** Who wants a port; one that is no number is like no other. */
interface Taker {
  readonly type: unknown;
  readonly kind: 'RDMA' | 'TCP';
  readonly port: number;
  readonly host?: unknown;
}

/** Services in each other's way. Looks at what was written, so that it is told together with all else. */
function clashes(raw: unknown): string[] {
  const takers = isMap(raw) ? takersIn(raw) : [];
  return takers.flatMap(({ type, kind, port, host }, i) => {
    const meets = (other: Taker) => isAny(host) || isAny(other.host) || other.host === host;
    const other = takers.slice(0, i).find((other) => other.kind === kind && other.port === port && meets(other));
    return other === undefined ? [] : [`services: ${type} wants ${kind} port ${port}, which ${other.type} has already`];
  });
}

function takersIn({ addresses, services, metrics }: Readonly<Record<string, unknown>>): Taker[] {
  const host = Array.isArray(addresses) ? hostOf(addresses) : undefined;
  const takers = (Array.isArray(services) ? services.filter(isMap) : []).map(({ type, port }): Taker => {
    const isPerftest = PERFTESTS.includes(String(type));
    if (isPerftest) return { type, kind: 'TCP', port: Number(port ?? PORTS.perftest), host };
    return { type, kind: 'RDMA', port: Number(port ?? PORTS[type as keyof typeof PORTS]) };
  });
  if (!isMap(metrics)) return takers;
  const { port, host: metricsHost = METRICS_HOST } = metrics;
  return [...takers, { type: 'metrics', kind: 'TCP', port: Number(port), host: metricsHost }];
}

const isAny = (host: unknown) => host === undefined || host === '0.0.0.0' || host === '::';

/** The only address on which services listen over TCP; undefined: all. */
export function hostOf<T>(addresses: readonly T[] = []): T | undefined {
  return addresses.length === 1 ? addresses[0] : undefined;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
