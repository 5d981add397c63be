/**
 * The parts of Node that the verbs import, for a page: the build puts this file in the place of every module of Node. Events and
 * the tests of addresses work. Files, sockets and processes do not exist in a page: what needs them throws.
 */

type Listener = (...args: unknown[]) => void;

/** The part of node:events that the verbs use. As in Node, it works for objects whose constructor was not called. */
export class EventEmitter {
  declare private byName?: Map<string, Set<Listener>>;

  on(name: string, listener: Listener): this {
    this.byName ??= new Map();
    this.byName.set(name, (this.byName.get(name) ?? new Set()).add(listener));
    return this;
  }

  off(name: string, listener: Listener): this {
    this.byName?.get(name)?.delete(listener);
    return this;
  }

  emit(name: string, ...args: unknown[]): boolean {
    const listeners = [...(this.byName?.get(name) ?? [])];
    for (const listener of listeners) listener(...args);
    return listeners.length > 0;
  }

  removeAllListeners(): this {
    this.byName?.clear();
    return this;
  }
}

/** Of node:util. */
export const inspect = Object.assign((value: unknown) => String(value), { custom: Symbol('inspect') });

/** Of node:net. */
export const isIPv4 = (text: string): boolean =>
  /^\d{1,3}(\.\d{1,3}){3}$/.test(text) && text.split('.').every((part) => Number(part) < 256);
export const isIPv6 = (text: string): boolean => URL.canParse(`http://[${text}]/`);
export const isIP = (text: string): 0 | 4 | 6 => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0);

/** Of node:url and node:path. */
export const fileURLToPath = (url: URL): string => url.pathname;
export const join = (...parts: readonly string[]): string => parts.join('/');

/** Of node:fs: there are no files. */
export const existsSync = (): boolean => false;

const absent = (name: string) => (): never => {
  throw new Error(`a page has no ${name}`);
};
export const [on, once] = [absent('events.on'), absent('events.once')];
export const [lstatSync, mkdirSync, readdirSync, readFileSync, rmSync] = [
  ...[absent('lstatSync'), absent('mkdirSync'), absent('readdirSync'), absent('readFileSync'), absent('rmSync')],
] as const;
export const [connect, createServer, createRequire, Socket] = [
  absent('connect'),
  absent('createServer'),
  absent('createRequire'),
  absent('Socket'),
];

/** Of node:perf_hooks. */
export const { performance } = globalThis;

/** Of node:diagnostics_channel: nobody subscribes. */
export const channel = () => ({ hasSubscribers: false, publish() {} });

/** Of node:timers/promises. */
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export { sleep as setTimeout };

/** Node's module node:timers. A page has neither setImmediate nor clearImmediate. */
export default {
  setTimeout: globalThis.setTimeout.bind(globalThis),
  setInterval: globalThis.setInterval.bind(globalThis),
  clearTimeout: globalThis.clearTimeout.bind(globalThis),
  clearInterval: globalThis.clearInterval.bind(globalThis),
  setImmediate: absent('setImmediate'),
  clearImmediate: absent('clearImmediate'),
};
