/**
 * Programs that others wrote, and the ways in which they run under `wasm-roce run`. The tests run them, and make the
 * table of docs/tested-programs.md of what they find.
 */
import { MULTIARCH } from './compiled.js';

/** One way to run a program: both ends complete, or the program is refused. */
export interface Way {
  /** As the table has it, in Markdown. */
  readonly name: string;
  /**
   * Words of a server. ADDRESS, PORT and GID stand for an address of the server, a port, and the GID of the address;
   * IPV4 for the server's IPv4 address, CLIENT for an address of the client, FILE for the library and COPY for a copy
   * of it, OPENMPI and MPICH for the MPI program, FLAGS for the library before librspreload.so, VALKEY for the
   * folder of Valkey.
   */
  readonly server?: string;
  /** Words of the client, or of a program that runs alone. */
  readonly client: string;
  /** The server does not end with its client. */
  readonly stays?: true;
  /** Server and client find each other by rdma_cm: nothing outside of the server shows that it listens. */
  readonly cm?: true;
  readonly family?: 'IPv6';
  /** The program ends with an error, and says this. */
  readonly refused?: RegExp;
  /** Output of a program that has completed. */
  readonly prints?: RegExp;
  /** `npm test` runs it, too. */
  readonly core?: true;
}

export interface Program {
  readonly name: string;
  /** Debian's package, if it is one. */
  readonly package?: string;
  readonly ways: readonly Way[];
}

/** Returns the ways of a pingpong of rdma-core: the options of both ends. */
function pingpongs(tool: string, ways: Readonly<Record<string, Partial<Way> & { readonly options?: string }>>): Way[] {
  return Object.entries(ways).map(([name, { options = '', ...more }]) => {
    const words = `${tool} -g GID -p PORT -n 200 ${options}`;
    return { name, server: words, client: `${words} IPV4`, prints: /200 iters in/, ...more };
  });
}

const OF_ALL_PINGPONGS = {
  plain: { core: true },
  '`-c`': { options: '-c' },
  '`-e`': { options: '-e' },
  IPv6: { options: '-c', family: 'IPv6' },
} as const;

/** Returns the ways of a program whose ends find each other by rdma_cm. */
function byCm(server: string, client: string, more: Partial<Way> = {}): Way {
  return { name: 'plain', server, client, cm: true, ...more };
}

const RDMA_CORE: Program[] = [
  {
    name: 'ibv_devices',
    package: 'ibverbs-utils',
    ways: [{ name: 'plain', client: 'ibv_devices', prints: /wroce0/, core: true }],
  },
  {
    name: 'ibv_devinfo',
    package: 'ibverbs-utils',
    ways: [{ name: '`-v`', client: 'ibv_devinfo -v', prints: /hca_id:\twroce0/ }],
  },
  {
    name: 'ibv_rc_pingpong',
    package: 'ibverbs-utils',
    ways: pingpongs('ibv_rc_pingpong', {
      ...OF_ALL_PINGPONGS,
      '`-N`': { options: '-N' },
      '`-o` (on-demand paging)': { options: '-o', refused: /isn't ODP capable/ },
      '`-j` (device memory)': { options: '-j', refused: /doesn't support dm allocation/ },
    }),
  },
  { name: 'ibv_uc_pingpong', package: 'ibverbs-utils', ways: pingpongs('ibv_uc_pingpong', OF_ALL_PINGPONGS) },
  {
    name: 'ibv_ud_pingpong',
    package: 'ibverbs-utils',
    ways: pingpongs('ibv_ud_pingpong -s 1024', OF_ALL_PINGPONGS),
  },
  { name: 'ibv_srq_pingpong', package: 'ibverbs-utils', ways: pingpongs('ibv_srq_pingpong', OF_ALL_PINGPONGS) },
  {
    name: 'ibv_xsrq_pingpong',
    package: 'ibverbs-utils',
    ways: [{ name: 'XRC', client: 'ibv_xsrq_pingpong -g 1', refused: /Couldn't Open the XRC Domain 95/ }],
  },
  {
    name: 'rping',
    package: 'rdmacm-utils',
    ways: [
      byCm('rping -s -a ADDRESS -p PORT -V', 'rping -c -a ADDRESS -p PORT -V -C 1000', { name: '1,000 times' }),
      byCm('rping -s -P -a ADDRESS -p PORT -V', 'rping -c -a ADDRESS -p PORT -V -C 20', { name: '`-P`', stays: true }),
      byCm('rping -s -a ADDRESS -p PORT -V', 'rping -c -a ADDRESS -p PORT -V -C 20', { name: 'IPv6', family: 'IPv6' }),
    ],
  },
  {
    name: 'rdma_server, rdma_client',
    package: 'rdmacm-utils',
    ways: [byCm('rdma_server -s ADDRESS -p PORT', 'rdma_client -s ADDRESS -p PORT', { core: true })],
  },
  {
    name: 'rdma_xserver, rdma_xclient',
    package: 'rdmacm-utils',
    ways: [
      byCm('rdma_xserver -p PORT -c r', 'rdma_xclient -s ADDRESS -p PORT -c r', { name: 'RC' }),
      { name: 'XRC', client: 'rdma_xclient -s ADDRESS -p PORT -c x', refused: /Operation not supported/ },
    ],
  },
  {
    name: 'ucmatose',
    package: 'rdmacm-utils',
    ways: [
      byCm('ucmatose -b ADDRESS -p PORT -c 10 -C 10', 'ucmatose -s ADDRESS -p PORT -c 10 -C 10', {
        name: '10 connections',
      }),
    ],
  },
  {
    name: 'udaddy',
    package: 'rdmacm-utils',
    ways: [byCm('udaddy -b ADDRESS -C 10', 'udaddy -s ADDRESS -C 10')],
  },
  {
    name: 'mckey',
    package: 'rdmacm-utils',
    ways: [
      byCm('mckey -m 239.7.7.7 -b ADDRESS -C 10', 'mckey -s -m 239.7.7.7 -b CLIENT -C 10', {
        name: 'IPv4',
        core: true,
      }),
      byCm('mckey -m ff15::7 -b ADDRESS -C 10', 'mckey -s -m ff15::7 -b CLIENT -C 10', {
        name: 'IPv6',
        family: 'IPv6',
      }),
    ],
  },
  {
    name: 'cmtime',
    package: 'rdmacm-utils',
    ways: [byCm('cmtime -b ADDRESS -p PORT -c 50', 'cmtime -s ADDRESS -p PORT -c 50', { stays: true })],
  },
  {
    name: 'rstream',
    package: 'rdmacm-utils',
    ways: [
      ...[
        ['plain', ''],
        ['`-T b` (blocking)', '-T b'],
        ['`-T a` (asynchronous)', '-T a'],
        ['`-T v` (verifies)', '-T v'],
        ['`-S all`', '-S all -I 20'],
      ].map(([name = '', options]) => {
        const words = `rstream -b ADDRESS -p PORT ${options === '' ? '-S 4096 -I 200' : `-S 4096 -I 200 ${options}`}`;
        return byCm(words, words.replace('-b ADDRESS', '-s ADDRESS'), { name });
      }),
    ],
  },
  {
    name: 'riostream',
    package: 'rdmacm-utils',
    ways: [byCm('riostream -b ADDRESS -p PORT -S 4096 -I 200', 'riostream -s ADDRESS -p PORT -S 4096 -I 200')],
  },
  {
    name: 'rcopy',
    package: 'rdmacm-utils',
    ways: [byCm('rcopy', 'rcopy FILE ADDRESS:COPY', { prints: /bytes in .* seconds/, stays: true })],
  },
  {
    name: 'udpong',
    package: 'rdmacm-utils',
    ways: [
      byCm('udpong -b ADDRESS -p PORT -S 512 -C 100', 'udpong -s ADDRESS -p PORT -S 512 -C 100', {
        core: true,
        stays: true,
      }),
    ],
  },
];

/**
 * Modules of rdma-core's tests (pyverbs). The others are for flow steering, tag matching, on-demand paging, and single
 * adapters.
 */
export const PYVERBS_MODULES = [
  ...['addr', 'atomic', 'cq', 'cq_events', 'cqex', 'device', 'mr', 'parent_domain', 'pd'],
  ...['qp', 'qpex', 'relaxed_ordering', 'rdmacm'],
];

/** Tools of perftest, and the transports of each. */
const PERFTEST = {
  ib_write_bw: ['RC', 'UC'],
  ib_write_lat: ['RC', 'UC'],
  ib_read_bw: ['RC'],
  ib_read_lat: ['RC'],
  ib_send_bw: ['RC', 'UC', 'UD'],
  ib_send_lat: ['RC', 'UC', 'UD'],
  ib_atomic_bw: ['RC'],
  ib_atomic_lat: ['RC'],
} as const;

function perftest(name: string, transports: readonly string[]): Program {
  const isBandwidth = name.endsWith('bw');
  const size = name.includes('atomic') ? '' : '-s 1024';
  const way = (title: string, options: string, more: Partial<Way> = {}): Way => {
    const words = `${name} -F -p PORT -x GID ${size} ${options}`;
    return { name: title, server: words, client: `${words} IPV4`, prints: /#bytes/, ...more };
  };
  const many = '-n 200';
  return {
    name,
    package: 'perftest',
    ways: [
      ...transports.map((transport) =>
        way(transport, `-c ${transport} ${many}`, transport === 'UC' && isBandwidth ? { core: true } : {}),
      ),
      way('`-R`', `-R ${many}`, { cm: true }),
      ...(/write_lat|write_bw/.test(name) ? [] : [way('`-e`', `-e ${many}`)]),
      ...(isBandwidth ? [way('`-b`', `-b ${many}`), way('`-q 64`', `-q 64 ${many}`)] : []),
      ...(name.includes('send') ? [way('`--use-srq`', `--use-srq ${many}`)] : []),
      way('`-D 1`', '-D 1'),
      way('IPv6', `--ipv6 ${many}`, { family: 'IPv6' }),
    ],
  };
}

/** Tests of qperf that connect by rdma_cm. The others know addresses of InfiniBand only. */
const QPERF = {
  bandwidth: 'rc_bw rc_bi_bw rc_rdma_read_bw rc_rdma_write_bw',
  latency: 'rc_lat rc_rdma_read_lat rc_rdma_write_lat rc_rdma_write_poll_lat',
  atomics: 'rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add',
};

/** Returns the ways of a tool whose server is that of its client without an address. */
function ucxPerftest(ways: Readonly<Record<string, string>>): Way[] {
  return Object.entries(ways).map(([name, options]) => {
    const words = `${options} -n 2000 -p PORT`;
    const core = name === 'UCP messages' && ({ core: true } as const);
    return { name, server: words, client: `${words} IPV4`, prints: /Final: +2000/, ...core };
  });
}

const UCP = 'env UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=wroce0:1 ucx_perftest';

const LIBRARIES: Program[] = [
  {
    name: 'qperf',
    package: 'qperf',
    ways: Object.entries(QPERF).map(([name, tests]) => ({
      name: `${name} by \`-cm 1\``,
      server: 'qperf -lp PORT',
      client: `qperf -cm 1 -lp PORT -t 1 IPV4 ${tests}`,
      stays: true,
    })),
  },
  {
    name: 'ucx_info (UCX)',
    package: 'ucx-utils',
    ways: [{ name: '`-d`', client: 'ucx_info -d', prints: /Transport: rc_verbs\n(.*\n)*.*Transport: ud_verbs/ }],
  },
  {
    name: 'ucx_perftest (UCX)',
    package: 'ucx-utils',
    ways: ucxPerftest({
      'UCT over rc_verbs': 'ucx_perftest -d wroce0:1 -x rc_verbs -t am_lat',
      'UCT over ud_verbs': 'ucx_perftest -d wroce0:1 -x ud_verbs -t am_lat',
      PUT: 'ucx_perftest -d wroce0:1 -x rc_verbs -t put_bw',
      'UCP messages': `${UCP} -t tag_lat`,
      'UCP PUT': `${UCP} -t ucp_put_bw`,
      'UCP GET': `${UCP} -t ucp_get`,
    }),
  },
  {
    name: 'fi_info (libfabric)',
    package: 'libfabric-bin',
    ways: [
      { name: '`-p verbs`', client: 'fi_info -p verbs', prints: /FI_EP_MSG(.*\n)*.*FI_EP_DGRAM(.*\n)*.*FI_EP_RDM/ },
    ],
  },
  {
    name: 'fi_pingpong (libfabric)',
    package: 'libfabric-bin',
    ways: [
      ['MSG', '-p verbs -e msg'],
      ['DGRAM', '-p verbs -e dgram'],
      ['RDM by ofi_rxm', '-p verbs;ofi_rxm -e rdm'],
      ['RDM by ofi_rxd', '-p verbs;ofi_rxd -e rdm'],
    ].map(([name = '', options]) => ({
      name,
      server: `fi_pingpong ${options} -B PORT -I 100 -S 1024`,
      client: `fi_pingpong ${options} -P PORT -I 100 -S 1024 IPV4`,
      prints: /^1k/m,
      ...(name === 'MSG' && ({ core: true } as const)),
    })),
  },
];

/** Four processes on one address, which may use our device and their own memory alone. */
const RANKS = { prints: /(rank \d of 4: 0 values are wrong\n){4}/ };
const OPENMPI = 'mpirun.openmpi --allow-run-as-root --oversubscribe -np 4';

/** Returns the words of fio at an end. */
const fio = (name: string, words: string) =>
  `fio --ioengine=rdma --port=PORT --bs=64k --size=50m --name=${name} ${words}`;

const RSOCKETS = `env LD_PRELOAD=FLAGS:/usr/lib/${MULTIARCH}/rsocket/librspreload.so:FILE`;

const SYSTEMS: Program[] = [
  {
    name: 'Open MPI',
    package: 'openmpi-bin',
    ways: [
      {
        name: 'UCX',
        client: `${OPENMPI} --mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self -x UCX_NET_DEVICES=wroce0:1 OPENMPI`,
        ...RANKS,
      },
      {
        name: 'libfabric',
        client: `${OPENMPI} --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm OPENMPI`,
        ...RANKS,
      },
    ],
  },
  {
    name: 'MPICH',
    package: 'mpich',
    ways: [
      {
        name: 'UCX',
        client:
          'mpirun.mpich -launcher fork -np 4 -genv UCX_TLS rc_verbs,ud_verbs,self -genv UCX_NET_DEVICES wroce0:1 MPICH',
        ...RANKS,
        core: true,
      },
    ],
  },
  {
    name: 'fio, engine rdma',
    package: 'fio',
    ways: ['write', 'read', 'send'].map((verb) =>
      byCm(
        // fio asks for no retries where the peer has no receive
        fio('server', '--rw=read --iodepth=64'),
        fio('client', `--hostname=ADDRESS --rw=write --iodepth=1 --verb=${verb}`),
        { name: `\`verb=${verb}\``, prints: /err= 0/ },
      ),
    ),
  },
  {
    name: 'Valkey (valkey-server, valkey-benchmark)',
    ways: [
      byCm(
        'VALKEY/valkey-server --port 0 --protected-mode no --save --appendonly no --rdma-bind ADDRESS --rdma-port PORT',
        'VALKEY/valkey-benchmark --rdma -h ADDRESS -p PORT -n 20000 -t set,get -q',
        { name: 'RDMA', prints: /SET: .* requests per second(.*\s)*GET: .* requests per second/, stays: true },
      ),
    ],
  },
  {
    name: "curl, Python's http.server (`librspreload.so`)",
    package: 'curl',
    ways: [
      byCm(
        `${RSOCKETS} python3 -m http.server --bind ADDRESS PORT`,
        `${RSOCKETS} curl -sS -w %{http_code} http://ADDRESS:PORT/package.json`,
        { name: 'HTTP', prints: /"name": "wasm-roce"(.*\n)*200/, stays: true, core: true },
      ),
    ],
  },
];

export const PROGRAMS: readonly Program[] = [
  ...RDMA_CORE,
  ...LIBRARIES,
  ...SYSTEMS,
  ...Object.entries(PERFTEST).map(([name, transports]) => perftest(name, transports)),
];
