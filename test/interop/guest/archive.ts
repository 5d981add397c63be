/** The source of Debian's packages: that of this machine's apt, with a suite of the guest. */
import { execFileSync } from 'node:child_process';

/** Returns lines for sources.list: the archives of this machine's apt, or else Debian's own. */
export function sources(suite: string, type: 'deb' | 'deb-src' = 'deb'): string[] {
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
  const security = suite === 'sid' ? undefined : find('Debian/Debian-Security');
  const lines = [`${type} ${keyring} ${archive} ${suite} main`];
  if (security) lines.push(`${type} ${keyring} ${security} ${suite}-security main`);
  return lines;
}
