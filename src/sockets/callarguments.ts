/** The arguments of `listen` and `connect`, in all forms of `net.Server.listen` and `net.Socket.connect`. */
import { inspect } from 'node:util';
import { show } from '../base/options.js';
import { invalidValue } from '../errors.js';

/** The arguments of a call: its options, and the listener at the end. */
interface CallArguments {
  readonly options: object;
  readonly listener: (() => void) | undefined;
}

/** Returns the arguments of `connect(options[, listener])` or `connect(port[, host][, listener])`. @throws TypeError */
export function connectArguments(call: readonly unknown[]): CallArguments {
  return { options: optionsOf(call), listener: listenerOf(call) };
}

/**
 * Returns the arguments of `listen([port][, host][, backlog][, listener])` or `listen(options[, backlog][, listener])`.
 * Without a port, or with a port of null, any port is meant.
 * @throws TypeError
 */
export function listenArguments(call: readonly unknown[]): CallArguments {
  const [first] = call;
  const isAnyPort = call.length === 0 || first === undefined || first === null || typeof first === 'function';
  const options: { readonly port?: unknown } = isAnyPort ? { port: 0 } : optionsOf(call);
  if (!('port' in options)) throw invalidValue(`the options of listen are ${inspect(options)}, must have a port`);
  if (!isPort(options.port ?? 0)) throw invalidValue(`the port is ${show(options.port)}, must be a number or a text`);
  const backlog = [call[1], call[2]].map(Number).find((number) => number > 0);
  return {
    options: { ...(backlog !== undefined && { backlog }), ...options, port: options.port ?? 0 },
    listener: listenerOf(call),
  };
}

function optionsOf([first, host]: readonly unknown[]): object {
  if (typeof first === 'object' && first !== null) {
    const { path, host, ...options } = first as { readonly path?: unknown; readonly host?: unknown };
    if (path !== undefined && path !== null && !isOfHttp(options)) throw noPath(path);
    // as for Node.js, an empty host is none
    return host ? { ...options, host } : options;
  }
  // as Node.js tells the path of a local socket from the text of a port
  if (typeof first === 'string' && !(Number(first) >= 0)) throw noPath(first);
  return { ...(first !== undefined && { port: first }), ...(typeof host === 'string' && { host }) };
}

function isPort(port: unknown): boolean {
  return typeof port === 'number' || typeof port === 'string';
}

function listenerOf(call: readonly unknown[]): (() => void) | undefined {
  const last = call.at(-1);
  return typeof last === 'function' ? (last as () => void) : undefined;
}

/**
 * Whether options are those of a request of `node:http`, whose agent, or option `createConnection`, calls `connect`
 * with all of them.
 */
export function isOfHttp(options: object): boolean {
  return '_agentKey' in options || 'createConnection' in options;
}

const noPath = (path: unknown): TypeError =>
  invalidValue(`the path is ${show(path)}: sockets over RDMA have ports, and no paths`);
