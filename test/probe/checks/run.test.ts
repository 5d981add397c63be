// Runs of checks: the order of their packets, what ends them early, and what is judged by the packets of all.
import { expect, test } from 'vitest';
import type { Check, ResponderCheck } from '../../../src/probe/checks/check.js';
import { CHECKS } from '../../../src/probe/checks/checks.js';
import type { CheckResult } from '../../../src/probe/checks/result.js';
import { type CheckRunOptions, RunEnded, runCheck, runChecks } from '../../../src/probe/checks/run.js';
import type { Responder, ResponderOptions, Target } from '../../../src/probe/checks/target.js';
import { decode } from '../../../src/probe/packet/decode.js';
import { ack, encodeFrame, flowOf, reverse } from '../../../src/probe/packet/packets.js';
import type { PacketPort } from '../../../src/probe/script/port.js';
import { Double } from './double.js';

const check: ResponderCheck = {
  ...{ number: 1000, name: 'three', title: 'It holds', clause: 'none', sends: 'WRITEs', expects: 'an ACK' },
  needs: { receives: false },
  async run(talk) {
    talk.send(talk.write(new Uint8Array(3000)));
    await talk.next();
  },
};

test('an answer that came between two packets stands between them, although it was read later', async () => {
  let now = 0;
  const there = flowOf();
  const port: PacketPort = {
    ...{ flow: there, mtu: 1024 },
    now: () => now,
    send() {
      now += 10;
      return now;
    },
    receive: async () => ({ frame: encodeFrame(reverse(there), ack({ psn: 100, msn: 0 })), at: 15 }),
  };
  const region = { va: 0n, rkey: 1, length: 65536 };
  const responder = async () => ({ port, psn: 100, region, receives: 0, receiveBytes: 0 });
  const { verdict, evidence } = await runCheck(check, { responder });
  expect(verdict).toBe('pass');
  expect(evidence.map(({ at, direction }) => `${at} ${direction}`)).toEqual(['10 out', '15 in', '20 out', '30 out']);
});

/** A check that waits for a packet again and again. */
const endless: ResponderCheck = {
  ...{ number: 1001, name: 'endless', title: 'It ends', clause: 'none', sends: 'a request', expects: 'nothing' },
  needs: { receives: false },
  async run(talk) {
    talk.send(talk.request());
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      await talk.next(1);
    }
  },
};

const named = (name: string) => CHECKS.find((one) => one.name === name) as ResponderCheck;

/** Runs checks to the end of the run, whatever ends it. */
async function runAll(checks: readonly Check[], target: Target, options: CheckRunOptions = {}) {
  const results: CheckResult[] = [];
  let error: unknown;
  try {
    for await (const result of runChecks(checks, target, options)) results.push(result);
  } catch (cause) {
    error = cause;
  }
  return { results: results.map(({ name, verdict, text }) => [name, verdict, text]), error, all: results };
}

test('a signal ends the check that runs: the report has the results so far, its packets, and the reason for the others', async () => {
  const end = new AbortController();
  const reason = new Error('stopped by SIGINT');
  setTimeout(() => end.abort(reason), 20);
  const checks = [named('ack-request'), endless, named('msn'), named('migreq')];
  const { results, error, all } = await runAll(checks, new Double(), { signal: end.signal });
  expect(error).toBe(reason);
  expect(results).toEqual([
    ['ack-request', 'pass', ''],
    ['endless', 'not applicable', 'not finished: stopped by SIGINT'],
    ['msn', 'not applicable', 'not run: stopped by SIGINT'],
    // its rule is judged by the packets of the others
    ['migreq', 'not applicable', 'not run: stopped by SIGINT'],
  ]);
  expect(all[1]?.evidence.length).toBeGreaterThan(0);
});

test('a run whose signal is aborted before it begins runs nothing', async () => {
  const reason = new Error('no route');
  const { results, error } = await runAll([named('msn')], new Double(), { signal: AbortSignal.abort(reason) });
  expect([results, error]).toEqual([[['msn', 'not applicable', 'not run: no route']], reason]);
});

test('a check that takes too long fails, and the run goes on', async () => {
  const { results, error } = await runAll([endless, named('msn')], new Double(), { checkTime: 30 });
  expect(results).toEqual([
    ['endless', 'fails', 'no verdict within 0.03 s: it was given up'],
    ['msn', 'pass', ''],
  ]);
  expect(error).toBeUndefined();
});

test('a check that was given up sends no more', async () => {
  let sent = 0;
  const sender: ResponderCheck = {
    ...endless,
    async run(talk) {
      for (;;) {
        talk.send(talk.request());
        sent++;
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
  const { results } = await runAll([sender], new Double(), { checkTime: 20 });
  const before = sent;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect([results[0]?.[1], sent]).toEqual(['fails', before]);
});

test('a run whose time is over ends with its results so far', async () => {
  const { results, error } = await runAll([named('msn'), endless, named('msn')], new Double(), { time: 30 });
  expect(results.map(([, verdict]) => verdict)).toEqual(['pass', 'not applicable', 'not applicable']);
  expect(error).toEqual(new RunEnded('0.03 s are over'));
});

test('a link that fails ends the run with the reason', async () => {
  const broken = new Error('ENETDOWN');
  const target: Target = {
    responder: async () => {
      throw broken;
    },
  };
  const { results, error } = await runAll([named('msn'), named('psn-gap')], target);
  expect(results.map(([, , text]) => text)).toEqual(['not finished: ENETDOWN', 'not run: ENETDOWN']);
  expect(error).toBe(broken);
});

/** A double that answers the checks up to one of them. */
class Dying extends Double {
  #left: number;
  tries = 0;
  constructor(
    checks: number,
    readonly isBack: boolean,
  ) {
    super();
    this.#left = checks;
  }
  override async responder(options: ResponderOptions): Promise<Responder | string> {
    const found = await super.responder(options);
    if (this.#left-- > 0 || typeof found === 'string') return found;
    return { ...found, port: { ...there, send: () => this.now, receive: async () => undefined, now: () => this.now } };
  }
  async answers(): Promise<boolean> {
    this.tries++;
    return this.isBack;
  }
}
const there = { flow: flowOf(), mtu: 1024 };

test('a peer that stops answering is a finding of its own, and ends the run', async () => {
  const checks = ['ack-request', 'msn', 'psn-gap', 'answers-to-the-end'].map(named);
  const peer = new Dying(1, false);
  const { results, error } = await runAll(checks, peer);
  const text =
    'the peer stopped answering after check 13 ack-request: no packet came in check 15 msn, and no connection since';
  expect(results).toEqual([
    ['ack-request', 'pass', ''],
    ['msn', 'fails', 'no answer to a request'],
    ['psn-gap', 'not applicable', `not run: ${text}`],
    ['answers-to-the-end', 'fails', text],
  ]);
  expect(error).toEqual(new RunEnded(text));
  expect(peer.tries).toBe(1);
});

test('a peer that fails one check and connects again has not stopped answering', async () => {
  const checks = ['ack-request', 'msn', 'answers-to-the-end'].map(named);
  const { results, error } = await runAll(checks, new Dying(1, true));
  expect(results.map(([, verdict]) => verdict)).toEqual(['pass', 'fails', 'pass']);
  expect(error).toBeUndefined();
});

test('a packet that every receiver drops is no answer; without the check of its rule the check fails', async () => {
  const alone = await runCheck(named('msn'), new Double('icrcWrong'));
  expect([alone.verdict, alone.text]).toEqual([
    'fails',
    'packets that have a wrong ICRC are no answers, 4 came (check 1 icrc); without them: no answer to a request',
  ]);
  const { results } = await runAll([named('msn'), named('icrc')], new Double('icrcWrong'));
  expect(results).toEqual([
    ['msn', 'not applicable', alone.text],
    ['icrc', 'fails', expect.stringMatching(/^8 of 8 packets have a wrong ICRC; the first one in check 15 msn: 0x/)],
  ]);
});

test('a rule shows its first breach with the packets around it, from whichever check', async () => {
  const checks = ['ack-request', 'latency', 'msn', 'icrc'].map(named);
  const { all } = await runAll(checks, new Double('icrcRare'));
  const icrc = all.find(({ name }) => name === 'icrc') as CheckResult;
  expect(icrc.verdict).toBe('fails');
  expect(icrc.text).toMatch(/^\d+ of \d+ packets have a wrong ICRC; the first one in check 56 latency: 0x/);
  expect(icrc.evidence.length).toBeGreaterThan(5);
  expect(icrc.evidence.filter(({ frame: bytes }) => !decode(bytes).icrcOk)).toHaveLength(1);
});
