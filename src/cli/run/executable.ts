/** Programs as the dynamic loader starts them: where they are, and whether a preloaded library reaches them. */
import { accessSync, closeSync, constants, openSync, readSync, type Stats, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The first bytes of a file that are looked at: the headers of an ELF file are among them. */
const HEAD_BYTES = 4096;
const ELF_MAGIC = 0x7f454c46;
const CLASS_64 = 2;
/** Segment with the path of the dynamic loader (PT_INTERP of elf(5)). */
const INTERPRETER = 3;
/** Processors by Node's names, as e_machine of elf(5) has them. */
const MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };

/** Returns the path of a program: as it is if it has a slash, else as the shell finds it. undefined: not found. */
export function findProgram(name: string, path = process.env.PATH ?? ''): string | undefined {
  const candidates = name.includes('/') ? [name] : path.split(delimiter).map((folder) => join(folder || '.', name));
  return candidates.find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * Returns why a preloaded library of this process's kind does not reach a program; undefined if it may. What starts
 * with a line `#!` is a script, and what its interpreter is says nothing about the programs that it starts.
 */
export function unreachable(path: string): string | undefined {
  if (changesUser(statSync(path)))
    return 'it has the set-user-id or set-group-id bit, and such programs ignore LD_PRELOAD (ld.so(8))';
  const head = headOf(path);
  if (head === undefined || head.length < 64 || head.readUInt32BE(0) !== ELF_MAGIC) return undefined;
  const machine = MACHINES[process.arch];
  if (head[4] !== CLASS_64 || head.readUInt16LE(18) !== machine) return `it is not for the processor ${process.arch}`;
  const loader = loaderOf(head);
  if (loader === undefined) return 'it is linked statically, so it has no libibverbs that can be replaced';
  if (loader.includes('ld-musl')) return `it is linked to musl (${loader}), and the library needs glibc`;
  return undefined;
}

/** Whether the kernel gives a program another user or group than that of this process. */
function changesUser({ mode, uid, gid }: Stats): boolean {
  const changesUid = (mode & 0o4000) !== 0 && uid !== process.getuid?.();
  const changesGid = (mode & 0o2000) !== 0 && gid !== process.getgid?.();
  return changesUid || changesGid;
}

function headOf(path: string): Buffer | undefined {
  try {
    const fd = openSync(path, 'r');
    try {
      const head = Buffer.alloc(HEAD_BYTES);
      return head.subarray(0, readSync(fd, head, 0, HEAD_BYTES, 0));
    } finally {
      closeSync(fd);
    }
  } catch {
    // a program may be executed by those who cannot read it
    return undefined;
  }
}

/** Returns the path of the dynamic loader; undefined if there is none. Fields as in elf(5), ELF64. */
function loaderOf(head: Buffer): string | undefined {
  const [at, size, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)];
  for (let i = 0; i < count; i++) {
    const segment = head.subarray(at + i * size, at + (i + 1) * size);
    if (segment.length < 56 || segment.readUInt32LE(0) !== INTERPRETER) continue;
    const offset = Number(segment.readBigUInt64LE(8));
    const text = head.subarray(offset, offset + Number(segment.readBigUInt64LE(32))).toString();
    return text.replace(/\0.*$/s, '');
  }
  return undefined;
}
