/** Calls from one process to another over Node's channel between them. */
import type { ChildProcess } from 'node:child_process';
import { errorReport } from '../exit.js';

type Methods = Record<string, (...values: never[]) => Promise<unknown>>;

interface Call {
  readonly id: number;
  readonly method: string;
  readonly values: unknown[];
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

/** Calls methods of what the child `serve`s. */
export function callsTo<T extends object>(child: ChildProcess, methods: readonly (keyof T & string)[]): T {
  const pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let calls = 0;
  child.on('message', ({ id, value, error }: Answer) => {
    const call = pending.get(id);
    pending.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  });
  child.once('exit', (status, signal) => {
    for (const { reject } of pending.values())
      reject(new Error(`the other card's process ended (${signal ?? status})`));
    pending.clear();
  });
  const call = (method: string, values: unknown[]) =>
    new Promise((resolve, reject) => {
      const id = calls++;
      pending.set(id, { resolve, reject });
      child.send({ id, method, values } satisfies Call, (error) => error && reject(error));
    });
  const entries = methods.map((method) => [method, (...values: unknown[]) => call(method, values)]);
  return Object.fromEntries(entries) as T;
}

/** Lets the parent process call these methods. */
export function serve(methods: object): void {
  process.on('message', async ({ id, method, values }: Call) => {
    try {
      const value = await (methods as Methods)[method]?.(...(values as never[]));
      process.send?.({ id, value } satisfies Answer);
    } catch (error) {
      process.send?.({ id, error: errorReport(error).message } satisfies Answer);
    }
  });
}
