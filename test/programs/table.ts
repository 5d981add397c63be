/** The page that says which programs run. */
import { type Program, PYVERBS_MODULES, type Way } from './catalogue.js';

const HEAD = `# Programs that run

The tests run these programs of Debian 12, unchanged, under [\`wasm-roce run\`](programs.md): without privileges, the
server in one network namespace and the client in another. The options are those of both ends. Refused are programs and
options that need what the card does not have; they end with an error, as on an adapter without it.
\`npm run test:peers\` runs all of them, and makes this page. It runs those over reliable connections again on a network
that loses 1 % of the frames in each direction.
`;

const FOOT = `qperf without \`-cm 1\` uses addresses of InfiniBand alone, which no RoCE adapter takes. iperf3 over librdmacm 44's
\`librspreload.so\` connects and moves no data, as on rxe. Datagram sockets of librdmacm (udpong) fail on other RoCE devices;
here they work. Clients of sockets with flags (curl) need a library that takes the flags from \`socket\`, as over any rsockets:
test/programs/compiled.ts has one. sshd hands its connection to another program, which rsockets cannot. fio's SEND test
asks for no retries without a receive, so its server needs a longer queue than its client.
`;

const row = (...cells: readonly string[]) => `| ${cells.join(' | ')} |`;

/**
 * Returns the page.
 * @param programs the programs with the ways that have been found to run @param versionOf the version of a package
 */
export function tableOf(programs: readonly Program[], versionOf: (name: string) => string): string {
  const packages = [...new Set(programs.flatMap((program) => program.package ?? [])), 'python3-pyverbs'];
  const names = (ways: readonly Way[]) => ways.map(({ name }) => name).join(', ');
  const rows = programs.map(({ name, ways }) =>
    row(name, names(ways.filter(({ refused }) => !refused)), names(ways.filter(({ refused }) => refused))),
  );
  const pyverbs = row("rdma-core's tests", PYVERBS_MODULES.join(', '), 'XRC, raw packets, device memory');
  const table = [row('program', 'runs', 'refused'), row('---', '---', '---'), ...rows, pyverbs].join('\n');
  const versions = packages.map((name) => `${name} ${versionOf(name)}`).join(', ');
  return `${HEAD}\n${table}\n\n${FOOT}\nPackages: ${versions}.\n`;
}
