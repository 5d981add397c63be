/** Calls between a process and its child over Node's IPC channel. */
import type { ChildProcess } from 'node:child_process';
import { errorReport } from '../exit.js';
import { type Answer, answer, type Call, PendingCalls } from './calls.js';

/** Returns an object whose methods call those that the child `serve`s. */
export function callsTo<T extends object>(child: ChildProcess, methods: readonly (keyof T & string)[]): T {
  const calls = new PendingCalls((call, failed) => child.send(call, (error) => error && failed(error)));
  child.on('message', (message: Answer) => calls.settle(message));
  child.once('exit', (status, signal) => calls.fail(new Error(`the other card's process ended (${signal ?? status})`)));
  const entries = methods.map((method) => [method, (...values: unknown[]) => calls.call(method, values)]);
  return Object.fromEntries(entries) as T;
}

/** Lets the parent process call these methods. */
export function serve(methods: object): void {
  process.on('message', async (call: Call) => {
    process.send?.(await answer(methods, call, errorReport));
  });
}
