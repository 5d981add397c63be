/** Captures the output of one of our commands that runs in the test's own process. */
import { Writable } from 'node:stream';
import { Output } from '../../src/cli/output.js';

export class CapturedText extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
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
