/**
 * Whether the numbers of new connections can be guessed. The tests fail a peer whose numbers are random less than once
 * in 10^9 runs.
 */

import { psnDistance } from '../packet/psn.js';
import type { CmCheck } from './check.js';

/** Connections one after the other. */
const PSNS = 40;
const PSN_BITS = 24;
/**
 * PSNs that may be repeated, and steps that may be equal to the one before. Of 40 random PSNs three or more are
 * repeated once in 6 * 10^13 runs, and two steps are equal to the one before once in 4 * 10^11.
 */
const [REPEATED, EQUAL_STEPS] = [2, 1];
/** Steps of a counter with random increments: all are below 2^21. Random PSNs do so once in 2^78 runs. */
const SMALL_STEP = 2 ** 21;
/** Connections at a time. */
const LIVE = 8;

/** Number 54. */
export const ENTROPY_CHECKS: readonly CmCheck[] = [
  {
    number: 54,
    name: 'psn-entropy',
    title: 'The starting PSNs of connections are random',
    clause: 'IBTA 12.7.31, RFC 6528 (the same reason)',
    sends: `${PSNS} connections one after the other, each of a REQ, an RTU and a DREQ`,
    expects:
      'each of the 24 bits takes both values, at most 2 PSNs are repeated, steps are neither equal nor all below 2^21',
    counts: ['psn_repeated', 'psn_bits_constant'],
    connects: { service: true },
    async run(talk) {
      const psns: number[] = [];
      while (psns.length < PSNS) {
        const connection = await talk.established();
        psns.push(connection.rep.fields.startingPsn);
        await talk.end(connection);
      }
      const [first = 0] = psns;
      const changing = psns.reduce((bits, psn) => bits | (psn ^ first), 0);
      const constant = Array.from({ length: PSN_BITS }, (_, bit) => bit).filter((bit) => ((changing >> bit) & 1) === 0);
      const repeated = PSNS - new Set(psns).size;
      const steps = psns.slice(1).map((psn, i) => psnDistance(psn, psns[i] as number));
      const equal = steps.slice(1).filter((step, i) => step === steps[i]).length;
      talk.measure('psn_repeated', repeated);
      talk.measure('psn_bits_constant', constant.length);
      if (repeated > REPEATED) talk.fail(`${repeated} of ${PSNS} starting PSNs are repeated`);
      if (equal > EQUAL_STEPS) talk.fail(`${equal} of ${steps.length} steps between starting PSNs are equal`);
      if (steps.every((step) => Math.abs(step) < SMALL_STEP)) talk.fail('all steps between starting PSNs are small');
      if (constant.length > 0) talk.fail(`bits ${constant.join(', ')} of ${PSNS} starting PSNs never change`);
    },
  },
  {
    number: 54,
    name: 'distinct-numbers',
    title: 'Connections at the same time have queue pair numbers and communication ids of their own',
    clause: 'IBTA 12.7.1, 12.7.20',
    sends: `${LIVE} connections at the same time`,
    expects: 'no number twice; how far apart they are is measured',
    counts: ['qpn_step', 'comm_id_step'],
    connects: { service: true },
    async run(talk) {
      const reps: { readonly localQpn: number; readonly localCommId: number }[] = [];
      while (reps.length < LIVE) reps.push((await talk.established()).rep.fields);
      for (const [what, name] of [
        ['queue pair number', 'localQpn'],
        ['communication id', 'localCommId'],
      ] as const) {
        const numbers = reps.map((rep) => rep[name]);
        const again = numbers.find((number, i) => numbers.indexOf(number) !== i);
        if (again !== undefined) talk.fail(`two connections have the ${what} 0x${again.toString(16)}`);
        const measured = name === 'localQpn' ? 'qpn_step' : 'comm_id_step';
        for (const [i, number] of numbers.slice(1).entries())
          talk.measure(measured, Math.abs(number - (numbers[i] as number)));
      }
    },
  },
];
