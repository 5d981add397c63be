/** The cost of a program before it moves any data. */
import { digits, type Sheet } from '../report/sheet.js';
import { startLocal } from '../rig/local.js';
import { median } from '../rig/stats.js';
import { WorkerProcess } from '../rig/worker.js';
import type { IdleConnection, StartTimes } from '../workers/footprint.js';
import type { Context, Subject } from './subject.js';

export interface FootprintData {
  /** One for each round, each in a process of its own. */
  readonly starts: readonly StartTimes[];
  readonly idle: IdleConnection;
}

/** Idle connections; both of their ends are in one process. */
const CONNECTIONS = 10_000;

export const footprint: Subject<FootprintData> = {
  name: 'footprint',
  title: 'Footprint: start of a program, idle connections',

  async measure(context: Context) {
    const { settings, progress } = context;
    const starts: StartTimes[] = [];
    const rig = await context.host();
    for (let round = 0; round < settings.rounds; round++) {
      progress(`round ${round + 1} of ${settings.rounds}: import and first device`);
      const worker = WorkerProcess.start(rig, 'a', 'footprint');
      try {
        starts.push(await worker.call<StartTimes>('start', rig.a.interface));
      } finally {
        worker.kill();
      }
    }
    progress(`${CONNECTIONS} idle connections`);
    const worker = startLocal('footprint');
    try {
      return { starts, idle: await worker.callWithin<IdleConnection>(120_000, 'idle', CONNECTIONS) };
    } finally {
      worker.kill();
    }
  },

  sheets({ starts, idle }) {
    const kib = (bytes: number) => digits(bytes / 1024);
    const sheet: Sheet = {
      title: 'Medians of the rounds',
      head: ['', 'figure'],
      rows: [
        ["import('wasm-roce')", `${digits(startMs(starts, 'importMs'))} ms`],
        ['first device, packet link', `${digits(startMs(starts, 'deviceMs'))} ms`],
        ['one end of an idle connection: memory of the card', `${kib(idle.card)} KiB`],
        ['the same: JavaScript heap and other memory of the process', `${kib(idle.heap)} KiB`],
        ['the same: growth of resident memory, with the used pages of the card', `${kib(idle.resident)} KiB`],
      ],
      notes: [
        `Idle connections: ${CONNECTIONS.toLocaleString('en')} of \`device.connect\` and \`device.listen\` without options, both ends in one process over the memory link.`,
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: 'import and first device',
      most: 60,
      unit: ' ms',
      judge: ({ starts }) => ({ value: startMs(starts, 'importMs') + startMs(starts, 'deviceMs') }),
    },
    {
      target: 'one end of an idle connection, memory of the card and of the process',
      most: 48,
      unit: ' KiB',
      judge: ({ idle }) => ({ value: (idle.card + idle.heap) / 1024 }),
    },
  ],
};

const startMs = (starts: readonly StartTimes[], of: keyof StartTimes) => median(starts.map((times) => times[of]));
