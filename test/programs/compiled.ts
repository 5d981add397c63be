/** Files that the tests compile for programs of others. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../repo/sources.js';

const HERE = import.meta.dirname;
/** Debian's name of this processor in paths. */
export const MULTIARCH = `${process.arch === 'x64' ? 'x86_64' : 'aarch64'}-linux-gnu`;

/** Files that are compiled, by the names that stand for them in the words of a way. */
export interface Compiled {
  /** The MPI program by each implementation. */
  readonly OPENMPI: string;
  readonly MPICH: string;
  /** A library that makes rsockets of sockets with flags, too; it goes before librspreload.so. */
  readonly FLAGS: string;
}

/** Compiles files of the tests into a folder. */
export function compile(folder: string): Compiled {
  const make = (compiler: string, name: string, ...words: string[]) => {
    execFileSync(compiler, ['-O2', '-o', join(folder, name), ...words]);
    return join(folder, name);
  };
  const mpi = join(HERE, 'mpi.c');
  return {
    OPENMPI: make('mpicc.openmpi', 'openmpi', mpi),
    MPICH: make('mpicc.mpich', 'mpich', mpi),
    FLAGS: make('gcc', 'rsocketflags.so', '-shared', '-fPIC', join(ROOT, 'test/interop/guest/rsocketflags.c')),
  };
}

/** Compiles the XDP program that loses frames into a folder. @returns the file */
export function compileLoss(folder: string): string {
  const object = join(folder, 'loss.bpf.o');
  const words = ['-target', 'bpf', '-O2', '-g', '-Wall', '-Werror', `-I/usr/include/${MULTIARCH}`];
  execFileSync('clang', [...words, '-c', join(HERE, 'loss.bpf.c'), '-o', object]);
  return object;
}

/** Compiles the program that prints asynchronous events into a folder. @returns the file */
export function compileEvents(folder: string): string {
  const program = join(folder, 'events');
  execFileSync('gcc', ['-O2', '-Wall', '-Werror', '-o', program, join(HERE, 'events.c'), '-libverbs']);
  return program;
}
