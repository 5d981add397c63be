/**
 * Builds the guest's kernel and initramfs from Debian's own packages, into the cache that recipe.ts names:
 *
 *   tsx test/interop/guest/image.ts        builds if there is no image of this recipe yet, prints its folder
 *   WASM_ROCE_GUEST=bookworm tsx …         the same for the guest of another Debian suite
 *
 * Needs root and the Debian packages of packages.json. Packages come from wherever this machine's apt gets its own,
 * and are unpacked without their maintainer scripts: nothing of the guest's but busybox ever runs here.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { cacheFolder } from '../../../scripts/setup/cache.mjs';
import { sources } from './archive.js';
import { KernelModules } from './modules.js';
import { FOLDER, findGuestImage, type GuestImage, guestSuite, imageFolder, type Recipe, recipe } from './recipe.js';
import { packStorage } from './storage.js';

/** An image of another recipe is deleted after this time without use, because another clone may be using it. */
const STALE_MS = 24 * 3600 * 1000;
const BIGGEST = 1 << 30;

/**
 * Removes what no test needs: documentation, locales, and all libibverbs providers but rxe (each costs start-up time).
 */
const PRUNE = `
  rm -rf boot usr/share usr/lib/udev usr/lib/systemd usr/include var/lib/apt var/lib/dpkg var/cache
  rm -rf usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/perl* usr/bin/perl*
  find etc/libibverbs.d usr/lib/x86_64-linux-gnu/libibverbs -type f ! -name '*rxe*' -delete`;

/**
 * Run by mmdebstrap with the apt of the guest's suites: unpacks the kernel, the headers of its verbs, which may be
 * newer than those of this machine, and older tools into a folder of their own, all without their dependencies.
 */
const FETCH = `
  export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
  if [ "$OLDER_PACKAGES" ]; then
    cd "$OLDER_FOLDER"
    apt-get -qq download $OLDER_PACKAGES >&2
    for file in *.deb; do dpkg-deb -x "$file" .; done
    rm *.deb
  fi
  cd "$KERNEL_FOLDER"
  release=$KERNEL_RELEASE
  apt-cache show "linux-image-$release" >/dev/null 2>&1 ||
    release=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: linux-image-//p' | head -n 1)
  echo "$release" > release
  # the image is split in newer suites
  for part in image base binary modules; do
    apt-cache show "linux-$part-$release" >/dev/null 2>&1 && apt-get -qq download "linux-$part-$release" >&2
  done
  apt-get -qq download libibverbs-dev >&2
  for file in *.deb; do dpkg-deb -x "$file" .; done`;

/** Returns the network options of this machine's apt: proxies, timeouts, and whether stale indices are accepted. */
function aptOptions(): string {
  const all = execFileSync('apt-config', ['dump', 'Acquire'], { encoding: 'utf8' }).split('\n');
  return all.filter((line) => /^Acquire::(https?|Retries|Check-)/.test(line)).join('\n');
}

/** Returns the ELF kernel inside a bzImage. Entered through PVH, it needs no decompression under emulation. */
function extractKernel(bzImage: Buffer): Buffer {
  // Documentation/arch/x86/boot.rst: setup_sects at 0x1f1; payload_offset, payload_length at 0x248.
  const start = ((bzImage[0x1f1] || 4) + 1) * 512 + bzImage.readUInt32LE(0x248);
  const payload = bzImage.subarray(start, start + bzImage.readUInt32LE(0x24c));
  const magic = payload.toString('hex', 0, 4);
  const program = { '28b52ffd': 'zstd', fd377a58: 'xz', '1f8b0800': 'gzip' }[magic];
  if (!program) throw new Error(`guest kernel: payload starts with ${magic}, which is neither zstd, xz nor gzip`);
  // The last four bytes are the size field of the kernel, which is not part of the compressed stream.
  return execFileSync(program, ['-dc'], { input: payload.subarray(0, -4), maxBuffer: BIGGEST });
}

/** Creates a link to busybox for every tool that busybox has and Debian's packages do not provide. */
function installBusybox(root: string): void {
  const busybox = join(root, 'usr/bin/busybox');
  const taken = (name: string) =>
    ['bin', 'sbin'].some((d) => lstatSync(join(root, 'usr', d, name), { throwIfNoEntry: false }));
  for (const name of execFileSync(busybox, ['--list'], { encoding: 'utf8' }).split('\n')) {
    if (name && !taken(name)) symlinkSync('busybox', join(root, 'usr/bin', name));
  }
}

/** Unpacks packages of a suite and all that they depend on. @param more options @param env of its hooks */
function unpack(
  { packages, suite, older }: Pick<Recipe, 'packages' | 'suite' | 'older'>,
  root: string,
  aptFile: string,
  { more = [], env = {} }: { more?: readonly string[]; env?: NodeJS.ProcessEnv } = {},
): void {
  execFileSync(
    'mmdebstrap',
    [
      '--quiet',
      '--mode=root',
      '--variant=extract',
      `--aptopt=${aptFile}`,
      // the same folders in every suite: /bin is /usr/bin
      '--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr',
      `--include=${packages.join(',')}`,
      ...more,
      suite,
      root,
      ...[suite, ...(older ? [older.suite] : [])].flatMap((of) => sources(of)),
    ],
    { env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'inherit'] },
  );
}

function build(folder: string): void {
  const started = Date.now();
  const { suite, kernel = 'newest', packages, modules: wanted, older, storage } = recipe();
  const root = join(folder, 'root');
  const kernelFolder = join(folder, 'kernel');
  const olderFolder = join(folder, 'older');
  const aptFile = join(folder, 'apt.conf');
  for (const name of [kernelFolder, olderFolder]) mkdirSync(name, { recursive: true });
  writeFileSync(aptFile, aptOptions());
  unpack({ packages, suite, ...(older && { older }) }, root, aptFile, {
    more: [`--extract-hook=set -e; ${FETCH}`],
    env: {
      ...{ KERNEL_FOLDER: kernelFolder, KERNEL_RELEASE: kernel, OLDER_FOLDER: olderFolder },
      OLDER_PACKAGES: older ? older.packages.map((name) => `${name}/${older.suite}`).join(' ') : '',
    },
  });
  const release = readFileSync(join(kernelFolder, 'release'), 'utf8').trim();
  const places = [`boot/vmlinuz-${release}`, `usr/lib/modules/${release}/vmlinuz`].map((at) => join(kernelFolder, at));
  const bzImage = places.find(existsSync);
  if (!bzImage) throw new Error(`guest kernel: there is no ${places.join(' and no ')}`);
  execFileSync('sh', ['-ec', PRUNE], { cwd: root });
  if (older) {
    mkdirSync(join(root, 'opt'), { recursive: true });
    renameSync(join(olderFolder, 'usr/bin'), join(root, 'opt', older.suite));
  }
  const modules = new KernelModules(kernelFolder, release);
  const loaded = modules.install(wanted, root, 'modules');
  installBusybox(root);
  const compile = (...args: string[]) =>
    execFileSync('gcc', ['-O2', ...args], { cwd: FOLDER, stdio: ['ignore', 'ignore', 'inherit'] });
  compile('-static', '-o', join(root, 'init'), 'agent.c');
  compile('-shared', '-fPIC', '-o', join(root, 'usr/lib/rsocketflags.so'), 'rsocketflags.c');
  const parts = readdirSync(join(FOLDER, 'peer')).filter((name) => name.endsWith('.c'));
  const headers = join(kernelFolder, 'usr/include');
  const hasFlush = readFileSync(join(headers, 'infiniband/verbs.h'), 'utf8').includes('IBV_QP_EX_WITH_FLUSH');
  const programs = parts.map((name) => join('peer', name));
  const defined = hasFlush ? ['-DHAS_FLUSH'] : [];
  const route = join(root, 'usr/lib/datagramroute.so');
  compile('-I', headers, '-shared', '-fPIC', '-o', route, 'datagramroute.c', '-libverbs');
  compile('-I', headers, ...defined, '-o', join(root, 'usr/bin/rxpeer'), ...programs, '-libverbs');
  writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n::1 localhost\n');
  writeFileSync(join(root, 'etc/nsswitch.conf'), 'hosts: files\n');
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
  // /dev is omitted: the kernel provides the first console, and the agent mounts the rest.
  const pack = 'find . -path ./dev -prune -o -print | LC_ALL=C sort | cpio --quiet --reproducible -o -H newc -R 0:0';
  execFileSync('sh', ['-ec', `${pack} > ../initrd`], { cwd: root });
  if (storage) {
    const unpacked = join(folder, 'unpacked');
    unpack({ packages: storage.packages, suite }, unpacked, aptFile);
    packStorage(folder, storage, { unpacked, root, modules, loaded });
    for (const name of [unpacked, join(folder, 'storage')]) rmSync(name, { recursive: true });
  }
  writeFileSync(join(folder, 'vmlinux'), extractKernel(readFileSync(bzImage)));
  for (const name of [root, kernelFolder, olderFolder, aptFile]) rmSync(name, { recursive: true });
  const info = { kernel: release, pinned: release === kernel, seconds: (Date.now() - started) / 1000 };
  writeFileSync(join(folder, 'info.json'), `${JSON.stringify(info)}\n`);
}

/** Runs `action` under a lock between processes, which ends with this process at the latest. */
async function locked(file: string, action: () => void): Promise<void> {
  // The holder ends with its input, which ends with this process.
  const holder = spawn('flock', [file, 'sh', '-c', 'echo held; cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lost = once(holder, 'exit').then(() => Promise.reject(new Error(`flock ${file} failed`)));
  lost.catch(() => {});
  await Promise.race([once(holder.stdout, 'data'), lost]);
  try {
    action();
  } finally {
    holder.stdin.end();
  }
}

/**
 * Returns the image of this recipe, and builds it if necessary; two concurrent callers share one build.
 * @param log called with a message before steps that take long
 * @throws Error when a package is not available or a tool is missing
 */
export async function buildGuestImage(log: (line: string) => void = () => {}): Promise<GuestImage> {
  const cache = cacheFolder();
  const folder = imageFolder();
  mkdirSync(cache, { recursive: true });
  if (!existsSync(folder)) {
    await locked(join(cache, 'guest.lock'), () => {
      if (existsSync(folder)) return;
      log(`building the guest image ${folder} from Debian ${guestSuite()}`);
      const unfinished = `${folder}.unfinished`;
      rmSync(unfinished, { recursive: true, force: true });
      try {
        build(unfinished);
        renameSync(unfinished, folder);
      } finally {
        rmSync(unfinished, { recursive: true, force: true });
      }
      const ofSuite = new RegExp(`^guest-(${guestSuite()}-)?[0-9a-f]+(\\.unfinished)?$`);
      for (const name of readdirSync(cache)) {
        const other = join(cache, name);
        const stale = Date.now() - statSync(other).mtimeMs > STALE_MS;
        if (ofSuite.test(name) && other !== folder && stale) rmSync(other, { recursive: true });
      }
    });
  }
  utimesSync(folder, new Date(), new Date());
  return findGuestImage() as GuestImage;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const image = await buildGuestImage((line) => console.error(line));
  console.log(image.folder);
}
