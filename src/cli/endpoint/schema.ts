/** The schema of a configuration: its keys with their rules and defaults, and the types that follow from it. */
import * as z from 'zod';
import { NVME_PORT } from '../../nvme.js';
import { VALKEY_PORT } from '../../valkey.js';
import { address, bytes, hostPort, integer, quantity, REGION_BYTES } from '../options.js';
import { KINDS } from '../perftest/parameters.js';

/** Access rights that peers may have to a region. */
const RIGHTS = ['remoteRead', 'remoteWrite', 'remoteAtomic'] as const;
/** Default port of each service. */
export const PORTS = {
  echo: 7471,
  regions: 7472,
  traffic: 7473,
  rping: 7174,
  valkey: VALKEY_PORT,
  nvme: NVME_PORT,
  perftest: 18515,
} as const;
export const METRICS_HOST = '127.0.0.1';
const MAX_MESSAGE_BYTES = 2 ** 30;
/** Names of regions and namespaces. */
const NAME = /^[\w.-]{1,64}$/;
const NAME_RULE = 'must have a name of 1 to 64 of A-Z a-z 0-9 _ - .';

/** A rule as JSON Schema has it, for editors. */
type JsonRule = Readonly<Record<string, unknown>>;

/** A number or text, checked by the parser of an option. */
function value<T>(parse: (text: string) => T, rule: JsonRule) {
  return z
    .unknown()
    .meta(rule)
    .transform((input, context): T => {
      try {
        return parse(typeof input === 'number' || typeof input === 'string' ? String(input) : '');
      } catch (error) {
        context.issues.push({ code: 'custom', input, message: ruleOf(error as Error) });
        return z.NEVER;
      }
    });
}

/** Turns `It must be this.` into a clause. */
const ruleOf = ({ message }: Error) => message.replace(/^It /, '').replace(/\.$/, '');

function oneOf<const T extends readonly string[]>(names: T) {
  return z.enum(names, { error: `must be ${names.length > 1 ? 'one of ' : ''}${names.join(', ')}` });
}

/** A map with known keys. */
function keys<Shape extends z.ZodRawShape>(shape: Shape) {
  const names = Object.keys(shape).join(', ');
  return z.strictObject(shape, {
    error: ({ code }) =>
      code === 'unrecognized_keys' ? `which is not a key; keys are ${names}` : `must be a map of ${names}`,
  });
}

/** Options take numbers as text; so does a configuration. */
const numberRule = (type: 'integer' | 'number', minimum: number, maximum: number, pattern: string): JsonRule => ({
  anyOf: [
    { type, minimum, maximum },
    { type: 'string', pattern },
  ],
});
const integerValue = (min: number, max: number) =>
  value(integer(min, max), numberRule('integer', min, max, '^(\\d+|0[xX][0-9a-fA-F]+)$'));
const bytesValue = (min: number, max: number) =>
  value(bytes(min, max), numberRule('integer', min, max, '^\\d+[kmgKMG]?$'));
const quantityValue = (max: number) => value(quantity(max), numberRule('number', 0, max, '^(\\d+\\.?\\d*|\\.\\d+)$'));
const addressValue = value(address, { type: 'string', anyOf: [{ format: 'ipv4' }, { format: 'ipv6' }] });

const port = (standard: number) => integerValue(1, 65535).default(standard).describe(`Port; ${standard} if not given.`);
const path = z.string({ error: 'must be the path of a file' }).min(1, { error: 'must be the path of a file' });

export const Region = keys({
  size: bytesValue(...REGION_BYTES)
    .optional()
    .describe('Bytes, such as 4096, 64k or 1m; as long as the file if not given.'),
  file: path.optional().describe('File that is loaded at the start.'),
  persist: z
    .boolean({ error: 'must be true or false' })
    .default(false)
    .describe('Write the region back to its file at the end, and on SIGUSR2.'),
  access: z
    .array(oneOf(RIGHTS), { error: `must be a list of ${RIGHTS.join(', ')}` })
    .min(1, { error: `must be a list of one or more of ${RIGHTS.join(', ')}` })
    .describe('What peers may do.'),
})
  .refine(({ size, file }) => size !== undefined || file !== undefined, { error: 'must have a size or a file' })
  .refine(({ persist, file }) => !persist || file !== undefined, { error: 'must have a file to persist in' })
  .meta({ anyOf: [{ required: ['size'] }, { required: ['file'] }] });

const nqn = z
  .string({ error: 'must be an NVMe qualified name, such as nqn.2026-01.com.example:disks' })
  .regex(/^nqn\..{1,219}$/, { error: 'must be an NVMe qualified name, such as nqn.2026-01.com.example:disks' });

export const Namespace = keys({
  file: path.describe('File or block device with the bytes.'),
  size: bytesValue(512, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe('Bytes, such as 1g; a file that is missing or shorter gets them. As long as the file if not given.'),
  blockBytes: z
    .union([z.literal(512), z.literal(4096)], { error: 'must be 512 or 4096' })
    .default(512)
    .describe('Bytes of a block, 512 or 4096; 512 if not given.'),
  readOnly: z.boolean({ error: 'must be true or false' }).default(false).describe('Refuse writes.'),
});

export const PERFTESTS = KINDS.map(({ name }) => name);

const Service = z.discriminatedUnion(
  'type',
  [
    keys({
      type: z.literal('echo'),
      port: port(PORTS.echo),
      messageBytes: bytesValue(64, MAX_MESSAGE_BYTES)
        .default(16_384)
        .describe('Longest message; a longer one ends the connection. 16384 if not given.'),
    }),
    keys({ type: z.literal('regions'), port: port(PORTS.regions) }),
    keys({ type: z.literal('traffic'), port: port(PORTS.traffic) }),
    keys({ type: z.literal('rping'), port: port(PORTS.rping) }),
    keys({
      type: z.literal('valkey'),
      port: port(PORTS.valkey),
      to: value(hostPort, { type: 'string', pattern: '^(\\[[^\\]]+\\]|[^:\\[\\]]+):\\d+$' })
        .prefault(`127.0.0.1:${PORTS.valkey}`)
        .describe('Server of Valkey or Redis over TCP, HOST:PORT; 127.0.0.1:6379 if not given.'),
    }),
    keys({
      type: z.literal('nvme'),
      port: port(PORTS.nvme),
      nqn: nqn.optional().describe('NVMe qualified name of the subsystem; one of this machine if not given.'),
      namespaces: z
        .record(z.string().regex(NAME, { error: NAME_RULE }), Namespace, {
          error: 'must be a map of namespaces by name',
        })
        .describe('Files that hosts have as disks, by name.'),
      hosts: z
        .array(nqn, { error: 'must be a list of NQNs' })
        .optional()
        .describe('Hosts that may connect; any if not given.'),
    }),
    keys({
      type: z.enum(PERFTESTS),
      port: port(PORTS.perftest),
      size: bytesValue(1, MAX_MESSAGE_BYTES)
        .optional()
        .describe('Bytes of a message; both ends must be given the same.'),
      iters: integerValue(2, 100_000_000).optional().describe('Messages; both ends must be given the same.'),
      qps: integerValue(1, 1024).default(1).describe('Queue pairs; both ends must be given the same.'),
    }),
  ],
  {
    error: ({ input }) =>
      isMap(input)
        ? `must be one of echo, regions, traffic, rping, valkey, nvme, ${PERFTESTS.join(', ')}`
        : 'must be a map with a type',
  },
);

export const Configuration = keys({
  interface: z
    .string({ error: 'must be the name of a network interface' })
    .optional()
    .describe('Network interface of the device; without it and `addresses` there is a device for each interface.'),
  addresses: z
    .array(addressValue, { error: 'must be a list of IP addresses' })
    .min(1)
    .optional()
    .describe('The only local addresses to use; all of the interface if not given.'),
  link: oneOf(['packet', 'udp', 'xdp']).optional().describe('packet where permitted, else udp, if not given.'),
  mode: oneOf(['inline', 'worker']).optional().describe('worker: the card has a thread of its own.'),
  spin: quantityValue(1e9).optional().describe('Microseconds for which the worker thread polls before it sleeps.'),
  memory: bytesValue(8 * 2 ** 20, 2 ** 32)
    .optional()
    .describe('Memory of the card; 256m and the size of the regions if not given.'),
  regions: z
    .record(z.string().regex(NAME, { error: NAME_RULE }), Region, { error: 'must be a map of regions by name' })
    .default({})
    .describe('Memory that peers can access, by name.'),
  services: z
    .array(Service, { error: 'must be a list of services' })
    .min(1, { error: 'must have one service at least' })
    .describe('What is served, each on a port of its own.'),
  metrics: keys({ port: integerValue(1, 65535), host: addressValue.default(METRICS_HOST) })
    .optional()
    .describe(`Counters for Prometheus over HTTP; host is ${METRICS_HOST} if not given.`),
});

/** Returns the JSON Schema of a configuration, for editors: `wasm-roce endpoint --schema` prints it. */
export function jsonSchema(): object {
  const schema = z.toJSONSchema(Configuration, { io: 'input', unrepresentable: 'any' });
  return { ...schema, title: 'Configuration of wasm-roce endpoint' };
}

export type Config = z.output<typeof Configuration>;
export type RegionConfig = z.output<typeof Region>;
export type ServiceConfig = z.output<typeof Service>;
export type PerftestConfig = Extract<ServiceConfig, { qps: number }>;
export type ValkeyConfig = Extract<ServiceConfig, { type: 'valkey' }>;
export type NvmeConfig = Extract<ServiceConfig, { type: 'nvme' }>;
export type MetricsConfig = NonNullable<Config['metrics']>;

export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
