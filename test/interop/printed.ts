/** What a command of ours prints when it runs in the test's own process. */
import { Writable } from 'node:stream';
import { Output } from '../../src/cli/output.js';

export class Text extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/** @param json as of `Output` */
export function printed(json = true): { readonly output: Output; readonly stdout: Text; readonly stderr: Text } {
  const [stdout, stderr] = [new Text(), new Text()];
  return { output: new Output(json, stdout, stderr as unknown as NodeJS.WriteStream), stdout, stderr };
}
