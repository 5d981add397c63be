/** The program of a ladder page: loads its packets, filters them, and shows what the reader chooses. */

import { aboutText, connectionText } from '../../src/probe/ladder/connection.js';
import { type PackedLadder, unpack } from '../../src/probe/ladder/pack.js';
import { KINDS, type LadderPacket, TROUBLE } from '../../src/probe/ladder/packet.js';
import { showDetails } from './details.js';
import { colour, element, switchTheme, useTheme } from './dom.js';
import { drawGoodput, drawPsns } from './plots.js';
import { COLOURS, LadderView } from './view.js';

async function load(): Promise<PackedLadder> {
  const text = element('data').textContent ?? '';
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return JSON.parse(await new Response(stream).text());
}

class Page {
  readonly packets: readonly LadderPacket[];
  readonly view = new LadderView((packet) => showDetails(element('details'), packet), { t: () => this.theme() });

  constructor(readonly ladder: PackedLadder) {
    this.packets = unpack(ladder);
    this.#makeTools();
    this.filter();
    element('ladder').focus();
  }

  #makeTools(): void {
    const select = element<HTMLSelectElement>('connection');
    const option = (text: string, value: string) => select.append(new Option(text, value));
    option(`all ${this.ladder.connections.length}`, 'all');
    const byTrouble = [...this.ladder.connections.entries()].sort(([, a], [, b]) => b.troubles - a.troubles);
    for (const [i, connection] of byTrouble)
      option(connectionText(connection) + (connection.troubles ? ` (${connection.troubles})` : ''), String(i));
    if (this.ladder.connections.length === 1) select.value = '0';
    const present = new Set(this.packets.map(({ kind }) => kind));
    for (const kind of KINDS.filter((each) => present.has(each))) {
      const label = document.createElement('label');
      label.innerHTML = `<input type="checkbox" checked value="${kind}"> <span class="swatch" style="background:var(--${COLOURS[kind]})"></span>${kind}`;
      element('kinds').append(label);
    }
    element('tools').addEventListener('change', () => this.filter());
    element('tools').addEventListener('submit', (event) => event.preventDefault());
    const on = (id: string, action: () => void) => element(id).addEventListener('click', action);
    on('smaller', () => this.view.zoom(1 / 1.4));
    on('larger', () => this.view.zoom(1.4));
    on('next', () => this.view.trouble(1));
    on('previous', () => this.view.trouble(-1));
    on('theme', () => this.theme());
    useTheme();
  }

  theme(): void {
    switchTheme();
    this.view.draw();
    this.plots();
  }

  filter(): void {
    const connection = element<HTMLSelectElement>('connection').value;
    const kinds = new Set(
      Array.from(document.querySelectorAll<HTMLInputElement>('#kinds input:checked'), ({ value }) => value),
    );
    const onlyTroubles = element<HTMLInputElement>('troubles').checked;
    const shown = this.packets.filter(
      (packet) =>
        (connection === 'all' || packet.connection === Number(connection)) &&
        kinds.has(packet.kind) &&
        (!onlyTroubles || (packet.marks & TROUBLE) !== 0),
    );
    const of = this.ladder.connections[connection === 'all' ? 0 : Number(connection)];
    const end = (i: 0 | 1) =>
      of === undefined ? '' : connection === 'all' ? of.addresses[i] : `${of.addresses[i]} qp ${of.qps[i] ?? '?'}`;
    element('pairing').textContent = of === undefined || connection === 'all' ? '' : aboutText(of);
    element('left').textContent = end(0);
    element('right').textContent = end(1);
    const troubles = shown.filter(({ marks }) => marks & TROUBLE).length;
    element('summary').textContent =
      `${shown.length} of ${this.packets.length} packets, ${troubles} with trouble` +
      (this.ladder.skipped > 0 ? `, ${this.ladder.skipped} not RoCEv2 or cut too short` : '');
    this.view.show(shown, element<HTMLSelectElement>('spacing').value === 'time');
    this.plots();
  }

  plots(): void {
    const colours = { text: colour('faint'), line: colour('line'), mark: colour('trouble'), data: colour('send') };
    drawPsns(element('psns'), this.view.shown, colours);
    drawGoodput(element('goodput'), this.view.shown, colours);
  }
}

load().then(
  (ladder) => {
    new Page(ladder);
    document.body.dataset.ready = 'true';
  },
  (error: Error) => {
    element('summary').textContent = `The page cannot be read: ${error.message}`;
  },
);
