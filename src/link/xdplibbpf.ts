/**
 * libbpf as the xdp link uses it, called through koffi: nothing of it is compiled in, so everything else works without it.
 * Functions answer as libbpf's own do: 0, an id or a file descriptor, or a negative errno.
 */
import { createRequire } from 'node:module';
import { VerbsError } from '../errors.js';

/** A pointer to something of libbpf's; null = none. */
export type Handle = unknown;

export interface Libbpf {
  openObject(path: string): Handle;
  loadObject(object: Handle): number;
  closeObject(object: Handle): void;
  findProgram(object: Handle, name: string): Handle;
  programFd(program: Handle): number;
  findMapFd(object: Handle, name: string): number;
  /** @param flags of linux/if_link.h: the mode */
  attachXdp(programFd: number, ifindex: number, flags: number): number;
  updateElement(mapFd: number, key: Uint8Array, value: Uint8Array): number;
  deleteElement(mapFd: number, key: Uint8Array): number;
  /** All keys of a map. */
  keys(mapFd: number, keyBytes: number): Uint8Array[];
  programById(id: number): number;
  mapById(id: number): number;
  linkById(id: number): number;
  /** The link behind this one in the kernel's list; undefined behind the last, or without CAP_SYS_ADMIN. */
  nextLinkId(id: number): number | undefined;
  /** The tag is the hash of the program's instructions. */
  programInfo(fd: number): { readonly tag: string; readonly name: string; readonly mapIds: readonly number[] };
  mapName(fd: number): string;
  /** Undefined when the link is of another kind than XDP. */
  linkInfo(fd: number): { readonly programId: number; readonly ifindex: number } | undefined;
}

const LIBRARY = 'libbpf.so.1';
/** Of linux/bpf.h. */
const BPF_XDP = 37;
const LINK_TYPE_XDP = 6;
const NAME_BYTES = 16;
/** Where `struct bpf_prog_info`, `bpf_map_info` and `bpf_link_info` have their members. */
const INFO_BYTES = 256;
const PROGRAM_INFO = { TAG: 8, TAG_BYTES: 8, MAP_COUNT: 52, MAP_IDS: 56, NAME: 64 } as const;
const MAP_INFO = { NAME: 24 } as const;
const LINK_INFO = { TYPE: 0, PROGRAM_ID: 8, IFINDEX: 16 } as const;
const MOST_MAPS = 16;
let loaded: Libbpf | undefined;

/** @throws VerbsError EOPNOTSUPP, with the Debian package that brings it */
export function libbpf(): Libbpf {
  loaded ??= load();
  return loaded;
}

/** Why there is none; undefined when there is. */
export function libbpfMissing(): string | undefined {
  try {
    libbpf();
    return undefined;
  } catch (error) {
    return (error as Error).message.replace(/^EOPNOTSUPP: /, '');
  }
}

function load(): Libbpf {
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    return declared(koffi, koffi.load(LIBRARY));
  } catch (cause) {
    const reason = (cause as Error).message.split('\n')[0];
    throw new VerbsError(
      'EOPNOTSUPP',
      `the xdp link needs ${LIBRARY}, which does not load (${reason}): on Debian it is in the package libbpf1`,
      { cause },
    );
  }
}

function declared(koffi: typeof import('koffi'), library: import('koffi').LibraryHandle): Libbpf {
  const define = (declaration: string) => library.func(declaration);
  // What libbpf has to say would go to standard error; its answers are enough.
  define('void *libbpf_set_print(void *print)')(null);
  const openFile = define('void *bpf_object__open_file(const char *path, const void *options)');
  const createLink = define('int bpf_link_create(int program, int target, int type, const void *options)');
  const update = define('int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags)');
  const nextKey = define('int bpf_map_get_next_key(int fd, const void *key, void *next)');
  const nextLink = define('int bpf_link_get_next_id(uint32_t id, void *next)');
  const getInfo = define('int bpf_obj_get_info_by_fd(int fd, void *info, void *length)');
  const info = (fd: number, before?: (bytes: Buffer) => void) => {
    const bytes = Buffer.alloc(INFO_BYTES);
    before?.(bytes);
    getInfo(fd, bytes, word(INFO_BYTES));
    return bytes;
  };
  return {
    openObject: (path) => openFile(path, null),
    loadObject: define('int bpf_object__load(void *object)'),
    closeObject: define('void bpf_object__close(void *object)'),
    findProgram: define('void *bpf_object__find_program_by_name(const void *object, const char *name)'),
    programFd: define('int bpf_program__fd(const void *program)'),
    findMapFd: define('int bpf_object__find_map_fd_by_name(const void *object, const char *name)'),
    attachXdp(programFd, ifindex, flags) {
      // struct bpf_link_create_opts: its size, flags
      const options = Buffer.alloc(16);
      options.writeUInt32LE(options.length, 0);
      options.writeUInt32LE(flags, 8);
      return createLink(programFd, ifindex, BPF_XDP, options);
    },
    updateElement: (fd, key, value) => update(fd, key, value, 0),
    deleteElement: define('int bpf_map_delete_elem(int fd, const void *key)'),
    keys(fd, keyBytes) {
      const found: Uint8Array[] = [];
      for (let next = new Uint8Array(keyBytes); nextKey(fd, found.at(-1) ?? null, next) === 0; )
        found.push(Uint8Array.from(next));
      return found;
    },
    programById: define('int bpf_prog_get_fd_by_id(uint32_t id)'),
    mapById: define('int bpf_map_get_fd_by_id(uint32_t id)'),
    linkById: define('int bpf_link_get_fd_by_id(uint32_t id)'),
    nextLinkId(id) {
      const next = word(0);
      return nextLink(id, next) === 0 ? next.readUInt32LE() : undefined;
    },
    programInfo(fd) {
      const ids = koffi.alloc('uint32_t', MOST_MAPS);
      const bytes = info(fd, (before) => {
        before.writeUInt32LE(MOST_MAPS, PROGRAM_INFO.MAP_COUNT);
        before.writeBigUInt64LE(koffi.address(ids), PROGRAM_INFO.MAP_IDS);
      });
      const count = Math.min(bytes.readUInt32LE(PROGRAM_INFO.MAP_COUNT), MOST_MAPS);
      const mapIds = [...koffi.decode(ids, 'uint32_t', count)] as number[];
      koffi.free(ids);
      const { TAG, TAG_BYTES, NAME } = PROGRAM_INFO;
      return { tag: bytes.toString('hex', TAG, TAG + TAG_BYTES), name: nameAt(bytes, NAME), mapIds };
    },
    mapName: (fd) => nameAt(info(fd), MAP_INFO.NAME),
    linkInfo(fd) {
      const bytes = info(fd);
      if (bytes.readUInt32LE(LINK_INFO.TYPE) !== LINK_TYPE_XDP) return undefined;
      return { programId: bytes.readUInt32LE(LINK_INFO.PROGRAM_ID), ifindex: bytes.readUInt32LE(LINK_INFO.IFINDEX) };
    },
  };
}

function nameAt(bytes: Buffer, at: number): string {
  return bytes.toString('latin1', at, at + NAME_BYTES).replace(/\0.*$/s, '');
}

function word(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
