/** The programs that documents print. */
import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT, text } from './sources.js';

/** A program, and the output that the document prints behind it. */
export interface Printed {
  readonly program: string;
  readonly output: string;
}

/** Returns the programs of a document in their order. @param language of their code blocks */
export function programsOf(path: string, language = 'js'): Printed[] {
  const blocks = new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`\n(?:\nIt prints:\n\n\`\`\`\n([^]*?)^\`\`\`\n)?`, 'gm');
  return Array.from(text(path).matchAll(blocks), ([, program = '', output = '']) => ({ program, output }));
}

/** Runs a program by the package that is built here. @param options of Node */
export async function runProgram(program: string, ...options: string[]): Promise<{ stdout: string; stderr: string }> {
  // within the package folder Node resolves the package's own name
  const file = join(ROOT, 'build', `program-${process.pid}.mjs`);
  writeFileSync(file, program);
  try {
    return await promisify(execFile)(process.execPath, [...options, file], { timeout: 30_000 });
  } finally {
    rmSync(file);
  }
}
