/** The page of the playground: its controls, and what it shows of both ends and the wire between them. */
import { setCardModule } from '../../src/device/card.js';
import { KINDS, type LadderPacket, TROUBLE } from '../../src/probe/ladder/packet.js';
import { showDetails } from '../ladder/details.js';
import { element, switchTheme, timeText, useTheme } from '../ladder/dom.js';
import { COLOURS, LadderView } from '../ladder/view.js';
import type { End } from './network.js';
import { OPERATIONS, type Operation, type Outcome, Session } from './session.js';
import { makeSlider, type Slider } from './slider.js';
import { drawWire } from './wire.js';

const DELAYS_MS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];
const MTUS = [256, 512, 1024, 2048, 4096];
const WINDOWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768];
/** Real milliseconds for a millisecond of the network; 0 = as fast as possible. */
const SPEEDS = [1000, 500, 200, 100, 50, 20, 10, 5, 2, 1, 0];
const SIZES = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144];
/** Real time for the network between two pictures (ms). */
const BUDGET_MS = 8;
/** Longest real time between two pictures that counts (ms): a page in the background stands still. */
const MAX_PICTURE_MS = 100;
const MAX_OUTCOMES = 50;
/** Counters that are always shown; others once they are not zero. */
const COUNTERS = [
  ...['sent_pkts', 'rcvd_pkts', 'sent_bytes', 'rcvd_bytes', 'retransmits', 'roce_adp_retrans', 'local_ack_timeout_err'],
  ...[
    'out_of_seq_request',
    'rcvd_seq_err',
    'duplicate_request',
    'rx_reordered',
    'send_rnr_err',
    'rcvd_rnr_err',
    'link.tx_lost',
  ],
];
const TROUBLE_COUNTERS = /retrans|timeout|err|out_of_seq|duplicate|drop|lost|reordered/;

const percent = (value: number) => `${value} %`;
const sizeText = (bytes: number) => (bytes < 1024 ? `${bytes} bytes` : `${bytes / 1024} KiB`);
const range = (most: number) => Array.from({ length: most + 1 }, (_, i) => i);

class Page {
  readonly view = new LadderView((packet) => showDetails(element('details'), packet), {
    Escape: () => this.view.follow(),
  });
  readonly mtu: Slider;
  readonly window: Slider;
  readonly speed: Slider;
  #isPaused = false;
  #lastPicture = 0;
  /** The time of the last picture, and whether anything but time may have passed since. */
  #shownTime = 0;
  #isStale = true;
  /** The state of the ladder: its last packet, and the number of packets. */
  #shown: LadderPacket | undefined;
  #cleared = 0;
  /** Changes of the connection, one after the other. */
  #changing: Promise<void> = Promise.resolve();

  constructor(readonly session: Session) {
    const { conditions } = session.network;
    makeSlider('loss', range(50), 0, percent, (value) => {
      conditions.loss = value / 100;
    });
    makeSlider('reorder', range(50), 0, percent, (value) => {
      conditions.reorder = value / 100;
    });
    makeSlider(
      'delay',
      DELAYS_MS,
      1,
      (ms) => `${ms} ms`,
      (ms) => {
        conditions.delay = ms * 1e6;
      },
    );
    this.mtu = makeSlider(
      'mtu',
      MTUS,
      1024,
      (bytes) => `${bytes} bytes`,
      () => {
        if (this.session.isConnected) this.connect();
      },
    );
    const windowText = (packets: number) =>
      packets === 768 ? 'no limit' : packets === 1 ? '1 packet' : `${packets} packets`;
    this.window = makeSlider('window', WINDOWS, 768, windowText, (packets) => this.session.limitWindow(packets));
    this.speed = makeSlider('speed', SPEEDS, 200, speedText, () => {});
    this.#makeOperations();
    this.#makeButtons();
    for (const end of [0, 1] as const) {
      const { device } = session.hosts[end];
      const address = document.querySelectorAll('.address')[end] as Element;
      address.textContent = device.gids[0]?.address ?? '';
    }
    this.#makeLegend();
    const onAction = () => {
      this.#isStale = true;
    };
    for (const event of ['click', 'input', 'change', 'resize']) addEventListener(event, onAction);
    this.connect();
    requestAnimationFrame((now) => this.#picture(now));
  }

  #makeOperations(): void {
    const size = element<HTMLSelectElement>('size');
    for (const bytes of SIZES) size.append(new Option(sizeText(bytes), String(bytes), bytes === 4096, bytes === 4096));
    for (const operation of OPERATIONS) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = operation;
      button.addEventListener('click', () => this.post(operation));
      element('operations').append(button);
    }
    element('controls').addEventListener('submit', (event) => event.preventDefault());
    element<HTMLInputElement>('receives').addEventListener('change', ({ target }) => {
      for (const host of this.session.hosts) host.postsReceives = (target as HTMLInputElement).checked;
    });
  }

  #makeButtons(): void {
    const on = (id: string, action: () => void) => element(id).addEventListener('click', action);
    on('connect', () => this.connect());
    on('reset', () => this.#change(() => this.session.reset(), 'Not connected.'));
    on('pause', () => this.pause(!this.#isPaused));
    on('step', () => this.step());
    on('clear', () => this.clear());
    on('smaller', () => this.view.zoom(1 / 1.4));
    on('larger', () => this.view.zoom(1.4));
    on('next', () => this.view.trouble(1));
    on('previous', () => this.view.trouble(-1));
    on('theme', () => {
      switchTheme();
      this.view.draw();
    });
    element('tools').addEventListener('change', () => this.#showPackets());
    element('tools').addEventListener('submit', (event) => event.preventDefault());
  }

  #makeLegend(): void {
    const entries: [string, string][] = KINDS.filter((kind) => !['CNP', 'CM', 'other'].includes(kind)).map((kind) => [
      kind,
      COLOURS[kind],
    ]);
    for (const [name, colour] of entries) {
      const item = document.createElement('li');
      item.innerHTML = `<span class="swatch" style="background:var(--${colour})"></span>${name}`;
      element('legend').append(item);
    }
    const item = document.createElement('li');
    item.textContent = 'red and dashed: sent again, ✕: lost';
    element('legend').append(item);
  }

  connect(): void {
    const [pathMtu, windowLimit] = [this.mtu.value, this.window.value];
    this.#change(() => this.session.connect({ pathMtu, windowLimit }), `Connected, path MTU ${pathMtu} bytes.`);
  }

  #change(action: () => Promise<void>, text: string): void {
    this.#changing = this.#changing.then(action).then(
      () => this.#say(text),
      (error: Error) => this.#say(error.message),
    );
  }

  post(operation: Operation): void {
    const from = Number(element<HTMLSelectElement>('from').value) as End;
    const text = element<HTMLInputElement>('text').value;
    const bytes = Number(element<HTMLSelectElement>('size').value);
    try {
      this.session.post({ from, operation, text, bytes, isKeyWrong: element<HTMLInputElement>('wrongkey').checked });
    } catch (error) {
      this.#say((error as Error).message);
    }
  }

  pause(isPaused: boolean): void {
    this.#isPaused = isPaused;
    const button = element('pause');
    button.textContent = isPaused ? 'Go on' : 'Pause';
    button.setAttribute('aria-pressed', String(isPaused));
  }

  step(): void {
    this.pause(true);
    this.session.step();
  }

  clear(): void {
    this.#cleared = this.session.packets.at(-1)?.number ?? 0;
    this.view.follow();
    this.#showPackets();
  }

  showOutcome({ number, order, status, took, finding, isRight }: Outcome): void {
    const item = document.createElement('li');
    item.dataset.number = String(number);
    item.className = isRight ? '' : 'failed';
    const add = (tag: string, text: string, name = '') => {
      const child = document.createElement(tag);
      child.textContent = text;
      child.className = name;
      item.append(child);
    };
    const size = order.operation === 'FETCH ADD' ? '' : `, ${sizeText(order.bytes)}`;
    add('span', `${number}. ${order.from === 0 ? 'A to B' : 'B to A'}: ${order.operation}${size} `);
    add('span', status, 'status');
    add('small', `${timeText(took)}; ${finding}`);
    element('outcomes').prepend(item);
    while (element('outcomes').childElementCount > MAX_OUTCOMES) element('outcomes').lastElementChild?.remove();
    if (status !== 'SUCCESS') this.#say('A card has given up: its queue pair is in the state ERR. Connect again.');
  }

  #say(text: string): void {
    this.#isStale = true;
    element('status').textContent = text;
  }

  #picture(now: number): void {
    const passed = Math.min(now - this.#lastPicture, MAX_PICTURE_MS);
    this.#lastPicture = now;
    if (!this.#isPaused) this.#pass(passed);
    if (this.session.clock.now !== this.#shownTime || this.#isStale) this.#show();
    requestAnimationFrame((next) => this.#picture(next));
  }

  /** Lets time pass: so much of it as the speed gives to these real milliseconds. */
  #pass(ms: number): void {
    const { clock } = this.session;
    const speed = this.speed.value;
    const end = performance.now() + BUDGET_MS;
    const until = speed === 0 ? Number.POSITIVE_INFINITY : clock.now + (ms / speed) * 1e6;
    this.session.advance(until, () => performance.now() < end);
  }

  #show(): void {
    const { session } = this;
    this.#shownTime = session.clock.now;
    this.#isStale = false;
    element('time').textContent = timeText(session.clock.now);
    drawWire(element('line'), session.network.flights, session.clock.now, (flight) => session.kindOf(flight));
    for (const end of [0, 1] as const) this.#showEnd(end);
    this.#showCounters();
    if (session.packets.at(-1) !== this.#shown) this.#showPackets();
  }

  #showEnd(end: End): void {
    const { qp, counter, lastMessage } = this.session.hosts[end];
    const { state, progress } = qp.query();
    const open = (progress.nextPsn - progress.unackedPsn) & 0xffffff;
    const [low = 0, high = 0] = counter.buffer;
    const rows: [string, string][] = [
      ['queue pair', `0x${qp.qpNum.toString(16)}, ${state}`],
      ['unacked', `${open} packets, window ${progress.window}`],
      ['round trip', progress.roundTrip === undefined ? '–' : timeText(progress.roundTrip)],
      [
        'last SEND',
        lastMessage === undefined
          ? '–'
          : `${textOf(lastMessage.data)}${lastMessage.immData === undefined ? '' : ` (${lastMessage.immData})`}`,
      ],
      ['last WRITE', this.session.written[end].length === 0 ? '–' : textOf(this.session.written[end])],
      ['counter', String(low + 256 * high)],
    ];
    const list = element(`end${end}`);
    for (const [i, [name, value]] of rows.entries()) {
      if (list.children[2 * i] === undefined) {
        const title = document.createElement('dt');
        title.textContent = name;
        list.append(title, document.createElement('dd'));
      }
      setText(list.children[2 * i + 1] as HTMLElement, value);
    }
  }

  #showCounters(): void {
    const [a, b] = this.session.hosts.map(({ device }) => device.counters()) as [
      Record<string, number>,
      Record<string, number>,
    ];
    const body = element<HTMLTableSectionElement>('counters');
    const isZero = (name: string) => a[name] === 0 && b[name] === 0;
    const others = Object.keys(a).filter(
      (name) => !COUNTERS.includes(name) && !name.startsWith('link.') && !isZero(name),
    );
    const names = [...COUNTERS, ...others];
    for (const name of names) {
      let row = body.querySelector<HTMLTableRowElement>(`[data-name="${name}"]`);
      if (row === null) {
        row = body.insertRow();
        row.dataset.name = name;
        row.innerHTML = `<th scope="row">${name}</th><td></td><td></td>`;
      }
      const [, first, second] = Array.from(row.cells);
      setText(first as HTMLElement, String(a[name]));
      setText(second as HTMLElement, String(b[name]));
      row.classList.toggle('trouble', TROUBLE_COUNTERS.test(name) && !isZero(name));
    }
  }

  #showPackets(): void {
    const { packets, hosts } = this.session;
    this.#shown = packets.at(-1);
    const onlyTroubles = element<HTMLInputElement>('troubles').checked;
    const shown = packets.filter(
      ({ number, marks }) => number > this.#cleared && (!onlyTroubles || (marks & TROUBLE) !== 0),
    );
    this.view.show(shown, element<HTMLSelectElement>('spacing').value === 'time');
    const troubles = shown.filter(({ marks }) => marks & TROUBLE).length;
    element('summary').textContent = `${shown.length} packets, ${troubles} with trouble`;
    for (const [i, id] of ['left', 'right'].entries())
      setText(element(id), `${'AB'[i]} qp 0x${hosts[i as End].qp.qpNum.toString(16)}`);
  }
}

function speedText(ms: number): string {
  if (ms === 0) return 'as fast as possible';
  return `1 ms takes ${ms >= 1000 ? `${ms / 1000} s` : `${ms} ms`}`;
}

/** Returns the start of bytes as text. */
function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes.slice(0, 40)).replace(/\p{Cc}/gu, '·');
}

/** Sets a text if it has changed, so that nothing is laid out again for nothing. */
function setText(of: HTMLElement, text: string): void {
  if (of.textContent !== text) of.textContent = text;
}

async function start(): Promise<void> {
  useTheme();
  const bytes = Uint8Array.from(atob(element('card').textContent ?? ''), (char) => char.charCodeAt(0));
  let page: Page | undefined;
  setCardModule(await WebAssembly.compile(bytes));
  const session = await Session.open((outcome) => page?.showOutcome(outcome));
  page = new Page(session);
  document.body.dataset.ready = 'true';
}

start().catch((error: Error) => {
  element('status').textContent = `The playground does not start: ${error.message}`;
});
