import { join } from 'node:path';
import { expect, test } from 'vitest';
import { code, sources } from './sources.js';

/** Mechanisms of `src/transport`: a pattern that shows a copy, and the files that need the same for another purpose. */
const MECHANISMS: readonly {
  readonly name: string;
  readonly pattern: RegExp;
  readonly elsewhere: readonly string[];
}[] = [
  { name: 'failures of a queue pair', pattern: /'QP_(FATAL|ACCESS_ERR|REQ_ERR)'/, elsewhere: [] },
  // the process of the endpoint ends by the failure of its device
  { name: 'failures of a device', pattern: /'DEVICE_FATAL'/, elsewhere: ['src/cli/endpoint/'] },
  { name: 'the end of a connection', pattern: /'(DISCONNECTED|DEVICE_REMOVAL)'/, elsewhere: [] },
  { name: 'pumps of completions', pattern: /\.on\('completion'/, elsewhere: [] },
  // programs that measure spin
  { name: 'polling of completion queues', pattern: /\bcq\.poll(UnlessFailed)?\(/, elsewhere: ['src/cli/'] },
  // `request.reject` of the API
  {
    name: 'refusals of requests',
    pattern: /(request|#id)\.reject\(/,
    elsewhere: ['src/protocols/message/request.ts', 'src/cli/'],
  },
  { name: 'shared send buffers', pattern: /SendPool\.join\(/, elsewhere: [] },
  { name: 'data of a stream for its reader', pattern: /callProgram\(\(\) => this(\.#stream)?\.push\(/, elsewhere: [] },
];

/** The rooms below, of which the mechanisms are made; and the probe, which has no verbs. */
const OTHERS = ['src/transport/', 'src/cm/', 'src/verbs/', 'src/device/', 'src/link/', 'src/probe/'];

test.each(MECHANISMS)('transport alone has $name', ({ pattern, elsewhere }) => {
  const has = (path: string) => pattern.test(code(path));
  expect(sources('src/transport', '.ts').filter(has)).not.toEqual([]);
  const above = sources('src', '.ts').filter(
    (path) => ![...OTHERS, ...elsewhere].some((begin) => path.startsWith(begin)),
  );
  expect(above.filter(has)).toEqual([]);
});

/** Uses of the names that src/base/timers.ts exports. */
const TIMES =
  /(?<![.\w#])(?:(?:set|clear)(?:Timeout|Interval|Immediate)|queueMicrotask|nextTick|sleep|performance(?=\.(?:now|timeOrigin)))\b(?=[.(])/g;

// fake timers of a program's tests replace those of Node while the library waits for a peer in real time
test('the library takes its timers and its clock from src/base/timers', () => {
  const library = sources('src', '.ts').filter(
    (path) => !path.startsWith('src/cli/') && path !== join('src', 'base', 'timers.ts'),
  );
  const faults = library.flatMap((path) => {
    const imported = /import \{([^}]*)\} from '[^']*\/timers\.js'/.exec(code(path))?.[1] ?? '';
    const others = [...code(path).matchAll(/process\.nextTick|'node:(?:timers|perf_hooks)[^']*'/g)].map(
      ([name]) => name,
    );
    const used = new Set([...code(path).matchAll(TIMES)].map(([name]) => name));
    const unbound = [...used].filter((name) => !new RegExp(`\\b${name}\\b`).test(imported));
    return [...others, ...unbound].map((name) => `${path}: ${name}`);
  });
  expect(faults).toEqual([]);
});
