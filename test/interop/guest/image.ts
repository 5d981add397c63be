/**
 * Builds the guest's kernel and initramfs from Debian's own packages, into the cache that recipe.ts names:
 *
 *   tsx test/interop/guest/image.ts        builds if there is no image of this recipe yet, prints its folder
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
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { FOLDER, findGuestImage, type GuestImage, imageCache, imageFolder, RECIPE } from './recipe.js';

/** An image of another recipe goes when nobody has built or asked for it in this time: another clone may be at work. */
const STALE_MS = 3600 * 1000;
const BIGGEST = 1 << 30;

/** What no test needs: documentation, locales, and every provider of libibverbs but rxe (each costs start-up time). */
const PRUNE = `
  rm -rf boot usr/share usr/lib/udev usr/lib/systemd usr/include var/lib/apt var/lib/dpkg var/cache
  rm -rf usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/perl* usr/bin/perl*
  find etc/libibverbs.d usr/lib/x86_64-linux-gnu/libibverbs -type f ! -name '*rxe*' -delete`;

/** Run by mmdebstrap with the apt of the guest's suites: unpacks the kernel, and the headers of its verbs, which know more than
 * older ones of this machine; and older tools into a folder of their own. All without what their packages depend on. */
const FETCH = `
  export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
  cd "$OLDER_FOLDER"
  apt-get -qq download $OLDER_PACKAGES >&2
  for file in *.deb; do dpkg-deb -x "$file" .; done
  rm *.deb
  cd "$KERNEL_FOLDER"
  package=linux-image-$KERNEL_RELEASE
  apt-cache show "$package" >/dev/null 2>&1 ||
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \\(linux-image-\\)/\\1/p' | head -n 1)
  apt-get -qq download "$package" libibverbs-dev >&2
  for file in *.deb; do dpkg-deb -x "$file" .; done`;

/** Lines for sources.list: the archives of this machine's apt, or else Debian's own, with a suite of the guest's. */
function sources(suite: string): string[] {
  const format = '$(REPO_URI) $(ORIGIN)/$(LABEL)';
  const known = execFileSync('apt-get', ['indextargets', '--format', format, 'Created-By: Packages'], {
    encoding: 'utf8',
  });
  const find = (label: string) =>
    known
      .split('\n')
      .find((line) => line.endsWith(` ${label}`))
      ?.split(' ')[0];
  const keyring = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]';
  const archive = find('Debian/Debian') ?? 'http://deb.debian.org/debian';
  const security = find('Debian/Debian-Security');
  const lines = [`deb ${keyring} ${archive} ${suite} main`];
  if (security) lines.push(`deb ${keyring} ${security} ${suite}-security main`);
  return lines;
}

/** How this machine's apt reaches its archives: proxies, time-outs, and whether stale indices are accepted. */
function aptOptions(): string {
  const all = execFileSync('apt-config', ['dump', 'Acquire'], { encoding: 'utf8' }).split('\n');
  return all.filter((line) => /^Acquire::(https?|Retries|Check-)/.test(line)).join('\n');
}

/** The ELF kernel inside a bzImage: entered through PVH, it need not be decompressed under emulation. */
function extractKernel(bzImage: Buffer): Buffer {
  // Documentation/arch/x86/boot.rst: setup_sects at 0x1f1; payload_offset, payload_length at 0x248.
  const start = ((bzImage[0x1f1] || 4) + 1) * 512 + bzImage.readUInt32LE(0x248);
  const payload = bzImage.subarray(start, start + bzImage.readUInt32LE(0x24c));
  const magic = payload.toString('hex', 0, 4);
  const program = { '28b52ffd': 'zstd', fd377a58: 'xz', '1f8b0800': 'gzip' }[magic];
  if (!program) throw new Error(`guest kernel: payload starts with ${magic}, which is neither zstd, xz nor gzip`);
  // The last four bytes are the kernel's own size field, no part of the compressed stream.
  return execFileSync(program, ['-dc'], { input: payload.subarray(0, -4), maxBuffer: BIGGEST });
}

/** Puts the recipe's modules, and what they depend on, into the guest, and lists them in the order of loading. */
function installModules(kernelFolder: string, release: string, root: string): void {
  if (!existsSync(join(kernelFolder, 'lib'))) symlinkSync('usr/lib', join(kernelFolder, 'lib'));
  execFileSync('depmod', ['-b', kernelFolder, release]);
  const modules = join(kernelFolder, 'lib/modules', release);
  const nameOf = (path: string) =>
    basename(path)
      .replace(/\.ko.*/, '')
      .replaceAll('-', '_');
  const known = new Map<string, string[]>();
  for (const line of readFileSync(join(modules, 'modules.dep'), 'utf8').split('\n')) {
    const files = line.split(/:? /).map((file) => file.replace(/:$/, ''));
    known.set(nameOf(files[0]), files);
  }
  const order = new Set<string>();
  for (const name of RECIPE.modules) {
    const files = known.get(name);
    // What is needed first stands last in a line of modules.dep.
    if (files) for (const file of files.reverse()) order.add(file);
    else if (!readFileSync(join(modules, 'modules.builtin'), 'utf8').includes(`/${name}.ko`)) {
      throw new Error(`guest kernel ${release} has no module ${name}`);
    }
  }
  mkdirSync(join(root, 'modules'));
  const list: string[] = [];
  for (const file of order) {
    const path = `/modules/${nameOf(file)}.ko`;
    const source = join(modules, file);
    const program = file.endsWith('.xz') ? 'xz' : file.endsWith('.zst') ? 'zstd' : undefined;
    const bytes = program ? execFileSync(program, ['-dc', source], { maxBuffer: BIGGEST }) : readFileSync(source);
    writeFileSync(join(root, path), bytes);
    list.push(path);
  }
  writeFileSync(join(root, 'etc/modules'), `${list.join('\n')}\n`);
}

/** Makes every tool that busybox has and Debian's packages did not bring a link to it. */
function installBusybox(root: string): void {
  const busybox = join(root, 'usr/bin/busybox');
  const taken = (name: string) =>
    ['bin', 'sbin'].some((d) => lstatSync(join(root, 'usr', d, name), { throwIfNoEntry: false }));
  for (const name of execFileSync(busybox, ['--list'], { encoding: 'utf8' }).split('\n')) {
    if (name && !taken(name)) symlinkSync('busybox', join(root, 'usr/bin', name));
  }
}

function build(folder: string): void {
  const started = Date.now();
  const { older } = RECIPE;
  const root = join(folder, 'root');
  const kernelFolder = join(folder, 'kernel');
  const olderFolder = join(folder, 'older');
  const aptFile = join(folder, 'apt.conf');
  for (const name of [kernelFolder, olderFolder]) mkdirSync(name, { recursive: true });
  writeFileSync(aptFile, aptOptions());
  execFileSync(
    'mmdebstrap',
    [
      '--quiet',
      '--mode=root',
      '--variant=extract',
      `--aptopt=${aptFile}`,
      `--include=${RECIPE.packages.join(',')}`,
      `--extract-hook=set -e; ${FETCH}`,
      RECIPE.suite,
      root,
      ...[RECIPE.suite, older.suite].flatMap(sources),
    ],
    {
      env: {
        ...{ ...process.env, KERNEL_FOLDER: kernelFolder, KERNEL_RELEASE: RECIPE.kernel, OLDER_FOLDER: olderFolder },
        OLDER_PACKAGES: older.packages.map((name) => `${name}/${older.suite}`).join(' '),
      },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  const bzImage = readdirSync(join(kernelFolder, 'boot')).find((name) => name.startsWith('vmlinuz-'));
  if (!bzImage) throw new Error(`guest kernel: ${kernelFolder}/boot has no vmlinuz`);
  const release = bzImage.slice('vmlinuz-'.length);
  execFileSync('sh', ['-ec', PRUNE], { cwd: root });
  mkdirSync(join(root, 'opt'), { recursive: true });
  renameSync(join(olderFolder, 'usr/bin'), join(root, 'opt', older.suite));
  installModules(kernelFolder, release, root);
  installBusybox(root);
  const compile = (...args: string[]) =>
    execFileSync('gcc', ['-O2', ...args], { cwd: FOLDER, stdio: ['ignore', 'ignore', 'inherit'] });
  compile('-static', '-o', join(root, 'init'), 'agent.c');
  const parts = readdirSync(join(FOLDER, 'peer')).filter((name) => name.endsWith('.c'));
  const headers = join(kernelFolder, 'usr/include');
  compile('-I', headers, '-o', join(root, 'usr/bin/rxpeer'), ...parts.map((name) => join('peer', name)), '-libverbs');
  writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n::1 localhost\n');
  writeFileSync(join(root, 'etc/nsswitch.conf'), 'hosts: files\n');
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
  // /dev is left out: the kernel brings the console it starts with, the agent mounts the rest.
  const pack = 'find . -path ./dev -prune -o -print | LC_ALL=C sort | cpio --quiet --reproducible -o -H newc -R 0:0';
  execFileSync('sh', ['-ec', `${pack} > ../initrd`], { cwd: root });
  writeFileSync(join(folder, 'vmlinux'), extractKernel(readFileSync(join(kernelFolder, 'boot', bzImage))));
  for (const name of [root, kernelFolder, olderFolder, aptFile]) rmSync(name, { recursive: true });
  const info = { kernel: release, pinned: release === RECIPE.kernel, seconds: (Date.now() - started) / 1000 };
  writeFileSync(join(folder, 'info.json'), `${JSON.stringify(info)}\n`);
}

/** Runs `action` while no other process that asks for the same lock does; the lock falls with this process. */
async function locked(file: string, action: () => void): Promise<void> {
  // The holder ends when its input does, which is when this process ends, however it ends.
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
 * The image of this recipe, built if need be; two processes that ask at once share one build.
 * @param log where a sentence about what takes time goes
 * @throws Error when a package cannot be had or a tool is missing
 */
export async function buildGuestImage(log: (line: string) => void = () => {}): Promise<GuestImage> {
  const cache = imageCache();
  const folder = imageFolder();
  mkdirSync(cache, { recursive: true });
  if (!existsSync(folder)) {
    await locked(join(cache, 'guest.lock'), () => {
      if (existsSync(folder)) return;
      log(`building the guest image ${folder} from Debian ${RECIPE.suite}`);
      const unfinished = `${folder}.unfinished`;
      rmSync(unfinished, { recursive: true, force: true });
      try {
        build(unfinished);
        renameSync(unfinished, folder);
      } finally {
        rmSync(unfinished, { recursive: true, force: true });
      }
      for (const name of readdirSync(cache)) {
        const other = join(cache, name);
        const stale = Date.now() - statSync(other).mtimeMs > STALE_MS;
        if (/^guest-[0-9a-f]+(\.unfinished)?$/.test(name) && other !== folder && stale)
          rmSync(other, { recursive: true });
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
