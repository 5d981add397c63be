/** Our commands that run in the test's own process: their output, and their end. */
import { connect } from 'node:net';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { Output } from '../../src/cli/output.js';

export class CapturedText extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/** The commands that run in the test's own process. */
const running = new Set<Promise<void>>();

/** Keeps a command among those that run, until it has ended. @returns the same promise */
export function tracked(command: Promise<void>): Promise<void> {
  running.add(command);
  const end = () => running.delete(command);
  command.then(end, end);
  return command;
}

/** Waits until all commands of this process have ended, at most for a minute. */
export async function commandsEnded(): Promise<void> {
  await Promise.race([Promise.allSettled(running), sleep(60_000, undefined, { ref: false })]);
}

/** Ends a server whose client failed before it connected, and which would wait for it without end. */
export function releaseServer(host: string, port: number): void {
  connect(port, host)
    .on('error', () => {})
    .end();
}

/** @param json the option of `Output` */
export function captureOutput(json = true): {
  readonly output: Output;
  readonly stdout: CapturedText;
  readonly stderr: CapturedText;
} {
  const [stdout, stderr] = [new CapturedText(), new CapturedText()];
  return { output: new Output(json, stdout, stderr as unknown as NodeJS.WriteStream), stdout, stderr };
}
