/** Programs on shared addresses that come and go, while others talk with each other. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../kit/random.js';
import type { Program } from './programs.js';

/** Options of `churn`. */
export interface Churn {
  /** Programs that stay, and as many that are ended and started again. */
  readonly stay: number;
  readonly addresses: readonly string[];
  readonly random: Random;
  /**
   * Times that the broker is killed, or stopped for a while, in a round at most. A program of any user starts the next
   * one, which admits that user alone.
   */
  readonly brokerKills: number;
  /** Starts a program that serves. @param number another one for each program */
  start(number: number): Promise<Program>;
  /** Says whether to go on. @param rounds that have been done */
  goesOn(rounds: number): boolean;
}

/** Result of `churn`: it is about the programs that stay. */
export interface ChurnResult {
  readonly rounds: number;
  /** Times that the broker was killed. */
  readonly brokers: number;
  /** Times that it was stopped, and went on. */
  readonly stops: number;
  readonly echoes: number;
  /** Messages that came back with other bytes. */
  readonly wrong: number;
  /** Connections between programs that stay that have ended. */
  readonly ended: number;
  /** Devices that have failed, and programs whose connections have stopped. */
  readonly failed: readonly string[];
}

/** A stop of the broker takes so long at most (ms). A program waits longer for its reply. */
const STOP_MS = 1000;

/**
 * In each round one of the programs that come and go ends, by SIGKILL or in order, and another one takes its place and
 * connects to all that stay. Meanwhile the broker is killed, or stopped for a while.
 */
export async function churn({ stay, addresses, random, brokerKills, start, goesOn }: Churn): Promise<ChurnResult> {
  const all = await Promise.all(Array.from({ length: 2 * stay }, (_, i) => start(i)));
  const [staying, others] = [all.slice(0, stay), all.slice(stay)];
  await Promise.all(all.map((each) => each.talkTo(staying, addresses)));
  let [rounds, brokers, stops] = [0, 0, 0];
  const disturbBroker = async (times: number) => {
    for (let k = 0; k < times; k++) {
      await sleep(random.below(500));
      const pid = await (staying[0] as Program).call('brokerPid');
      if (!pid) continue;
      if (random.below(3) > 0) {
        if (signal(pid, 'SIGKILL')) brokers++;
      } else if (signal(pid, 'SIGSTOP')) {
        await sleep(random.below(STOP_MS));
        signal(pid, 'SIGCONT');
        stops++;
      }
    }
  };
  for (; goesOn(rounds); rounds++) {
    const disturbing = disturbBroker(random.below(brokerKills + 1));
    const [victim] = others.splice(random.below(others.length), 1) as [Program];
    await (random.below(2) === 0 ? victim.child.kill() : victim.child.stop());
    const next = await start(2 * stay + rounds);
    others.push(next);
    await next.talkTo(staying, addresses);
    await disturbing;
  }
  const before = await Promise.all(staying.map((each) => each.counts()));
  for (const each of staying) await each.goesOn();
  const after = await Promise.all(staying.map((each) => each.counts()));
  const sum = (of: 'echoes' | 'wrong' | 'ended') => after.reduce((total, counts) => total + counts[of], 0);
  const failed = after.flatMap(({ fatal, talks }, i) => [
    ...(fatal === null ? [] : [fatal]),
    ...(talks.every((count, k) => count > (before[i]?.talks[k] ?? 0))
      ? []
      : [`program ${i}: a connection stands still`]),
  ]);
  return { rounds, brokers, stops, echoes: sum('echoes'), wrong: sum('wrong'), ended: sum('ended'), failed };
}

/** @returns whether there was such a process */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
