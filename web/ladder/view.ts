/** The ladder itself: draws the packets in view on a canvas, and lets the reader choose one. */
import { KINDS, type Kind, type LadderPacket, MARKS, TROUBLE } from '../../src/probe/ladder/packet.js';
import { colour, element, line, timeText } from './dom.js';

const LABEL_WIDTH = 104;
const RIGHT_MARGIN = 28;
const [MIN_ROW, MAX_ROW] = [2, 44];
/** Rows of fewer pixels have no text. */
const TEXT_ROW = 12;
/** The tallest element that browsers lay out exactly. */
const MAX_EXTENT = 15_000_000;
/** The part of the way that a lost packet gets. */
export const LOST_AT = 0.62;

/** The name of each kind's colour in view.css. */
export const COLOURS: Readonly<Record<Kind, string>> = {
  ...{ SEND: 'send', WRITE: 'write', READ: 'read', ATOMIC: 'atomic', RESPONSE: 'response', ACK: 'ack' },
  ...{ NAK: 'trouble', RNR: 'rnr', CNP: 'cnp', CM: 'cm', other: 'faint' },
};

/** The ladder of a page: the elements `ladder`, `scroll`, `extent` and `canvas`. */
export class LadderView {
  readonly canvas = element<HTMLCanvasElement>('canvas');
  readonly scroll = element('scroll');
  /** The packets, and the pixel at which each begins. */
  shown: readonly LadderPacket[] = [];
  tops: Float64Array = new Float64Array(0);
  row = 22;
  chosen: LadderPacket | undefined;
  #isByTime = false;
  #isDrawing = false;

  /**
   * @param onChoose called with the packet that the reader chooses
   * @param keys actions of further keys while the ladder has the focus
   */
  constructor(
    readonly onChoose: (packet: LadderPacket) => void,
    readonly keys: Readonly<Record<string, () => void>> = {},
  ) {
    addEventListener('resize', () => this.draw());
    this.scroll.addEventListener('scroll', () => this.draw());
    this.scroll.addEventListener('click', (event) => this.#click(event));
    element('ladder').addEventListener('keydown', (event) => this.#key(event));
  }

  /** Shows these packets. What was in view stays in view; a reader who is at the end stays at the end. */
  show(packets: readonly LadderPacket[], isByTime = false): void {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const isAtEnd = this.chosen === undefined && this.shown.length > 0 && scrollTop + clientHeight >= scrollHeight - 2;
    const keep = this.chosen ?? this.shown[this.#first()];
    this.shown = packets;
    this.#isByTime = isByTime;
    this.#layout();
    if (isAtEnd) this.scroll.scrollTop = this.scroll.scrollHeight;
    else if (keep !== undefined) this.#reveal(packets.indexOf(keep));
  }

  zoom(by: number): void {
    const keep = this.chosen ?? this.shown[this.#first()];
    this.row = Math.min(MAX_ROW, Math.max(MIN_ROW, this.row * by));
    this.#layout();
    if (keep !== undefined) this.#reveal(this.shown.indexOf(keep));
  }

  /** Chooses the next packet with trouble in a direction. */
  trouble(step: 1 | -1): void {
    const at = this.chosen ? this.shown.indexOf(this.chosen) : step === 1 ? -1 : this.shown.length;
    for (let i = at + step; i >= 0 && i < this.shown.length; i += step)
      if ((this.shown[i] as LadderPacket).marks & TROUBLE) {
        this.choose(i);
        return;
      }
  }

  choose(index: number): void {
    const packet = this.shown[index];
    if (packet === undefined) return;
    this.chosen = packet;
    this.#reveal(index);
    this.draw();
    this.onChoose(packet);
  }

  /** Chooses no packet, and goes to the end, where the ladder grows. */
  follow(): void {
    this.chosen = undefined;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.draw();
  }

  draw(): void {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#paint();
    });
  }

  /** Places the rows: evenly, or apart as the packets are in time. */
  #layout(): void {
    const { shown, row } = this;
    this.tops = new Float64Array(shown.length);
    const gaps = shown.slice(1).map(({ time }, i) => time - (shown[i] as LadderPacket).time);
    // a typical gap takes one more row; a long one takes at most eight
    const typical = this.#isByTime ? [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length * 0.9)] || 1 : 1;
    for (let i = 1, top = 0; i < shown.length; i++) {
      top += row + (this.#isByTime ? Math.min(8, (gaps[i - 1] as number) / typical) * row : 0);
      this.tops[i] = top;
    }
    element('extent').style.height = `${Math.min(MAX_EXTENT, this.#height())}px`;
    this.draw();
  }

  #height(): number {
    return (this.tops.at(-1) ?? 0) + 2 * this.row;
  }

  /** The pixel of the ladder at the top of the view. A very tall ladder moves by more than the scroll bar does. */
  #offset(): number {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const range = scrollHeight - clientHeight;
    return range <= 0 ? 0 : (scrollTop / range) * (this.#height() - clientHeight);
  }

  #first(offset = this.#offset()): number {
    let [low, high] = [0, this.tops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.tops[middle] as number) < offset - this.row) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #reveal(index: number): void {
    if (index < 0) return;
    const { scrollHeight, clientHeight } = this.scroll;
    const top = this.tops[index] as number;
    const offset = this.#offset();
    if (top >= offset && top + this.row <= offset + clientHeight) return;
    const height = this.#height() - clientHeight;
    if (height > 0) this.scroll.scrollTop = ((top - clientHeight / 3) / height) * (scrollHeight - clientHeight);
  }

  #paint(): void {
    const { canvas, scroll, row, shown, tops } = this;
    const [width, height] = [scroll.clientWidth, scroll.clientHeight];
    const scale = devicePixelRatio || 1;
    canvas.style.top = `${scroll.offsetTop}px`;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext('2d') as CanvasRenderingContext2D;
    context.scale(scale, scale);
    const [left, right] = [LABEL_WIDTH, width - RIGHT_MARGIN];
    context.strokeStyle = colour('line');
    context.lineWidth = 2;
    for (const x of [left, right]) line(context, x, 0, x, height);
    const offset = this.#offset();
    const palette = new Map(KINDS.map((kind) => [kind, colour(COLOURS[kind])]));
    const [text, faint, trouble, chosen] = ['text', 'faint', 'trouble', 'chosen'].map(colour) as [
      string,
      string,
      string,
      string,
    ];
    const hasText = row >= TEXT_ROW;
    context.font = `${Math.min(13, row * 0.62)}px system-ui, "DejaVu Sans", sans-serif`;
    for (let i = this.#first(offset); i < shown.length; i++) {
      const packet = shown[i] as LadderPacket;
      const y = (tops[i] as number) - offset;
      if (y > height) break;
      if (packet === this.chosen) {
        context.fillStyle = chosen;
        context.fillRect(0, y, width, row);
      }
      const isTrouble = (packet.marks & TROUBLE) !== 0;
      context.strokeStyle = context.fillStyle =
        isTrouble && packet.kind !== 'RNR' ? trouble : (palette.get(packet.kind) as string);
      context.lineWidth = row < 6 ? 1 : 1.5;
      context.setLineDash(packet.marks & MARKS.retransmission ? [6, 3] : []);
      const [from, to] = packet.direction === 0 ? [left, right] : [right, left];
      const slope = Math.min(4, row / 5);
      const end = y + row - (hasText ? 3 : 1);
      const isLost = (packet.marks & MARKS.lost) !== 0;
      const share = isLost ? LOST_AT : 1;
      const tip = from + (to - from) * share;
      line(context, from, end - slope, tip, end - slope + slope * share);
      context.setLineDash([]);
      if (row >= 8 && isLost) cross(context, tip, end - slope + slope * share);
      else if (row >= 8) arrow(context, to, end, packet.direction === 0 ? -1 : 1);
      if (!hasText) continue;
      context.textAlign = 'right';
      context.fillStyle = faint;
      context.fillText(timeText(packet.time), left - 8, end - 1);
      context.textAlign = packet.direction === 0 ? 'left' : 'right';
      context.fillStyle = isTrouble ? trouble : text;
      const label = `${packet.label}${markText(packet.marks)}`;
      context.fillText(label, packet.direction === 0 ? left + 10 : right - 10, end - slope - 4, right - left - 20);
    }
  }

  #click(event: MouseEvent): void {
    const y = event.clientY - this.scroll.getBoundingClientRect().top + this.#offset();
    let index = this.#first(y);
    while (index + 1 < this.tops.length && (this.tops[index + 1] as number) <= y) index++;
    this.choose(index);
    element('ladder').focus({ preventScroll: true });
  }

  #key(event: KeyboardEvent): void {
    const at = this.chosen ? this.shown.indexOf(this.chosen) : -1;
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / this.row) - 1);
    const actions: Readonly<Record<string, () => void>> = {
      ArrowDown: () => this.choose(at + 1),
      ArrowUp: () => this.choose(Math.max(0, at - 1)),
      PageDown: () => this.choose(Math.min(this.shown.length - 1, at + page)),
      PageUp: () => this.choose(Math.max(0, at - page)),
      Home: () => this.choose(0),
      End: () => this.choose(this.shown.length - 1),
      n: () => this.trouble(1),
      p: () => this.trouble(-1),
      '+': () => this.zoom(1.4),
      '-': () => this.zoom(1 / 1.4),
      ...this.keys,
    };
    const action = event.ctrlKey || event.altKey || event.metaKey ? undefined : actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
}

function markText(marks: number): string {
  const names = Object.entries(MARKS).filter(([name, bit]) => marks & bit && !['nak', 'rnr', 'cnp'].includes(name));
  return names.length === 0 ? '' : `  [${names.map(([name]) => (name === 'icrc' ? 'wrong ICRC' : name)).join(', ')}]`;
}

function arrow(context: CanvasRenderingContext2D, x: number, y: number, side: 1 | -1): void {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + side * 8, y - 4);
  context.lineTo(x + side * 8, y + 3);
  context.fill();
}

/** Draws the end of a packet that does not arrive. */
export function cross(context: CanvasRenderingContext2D, x: number, y: number): void {
  line(context, x - 4, y - 4, x + 4, y + 4);
  line(context, x - 4, y + 4, x + 4, y - 4);
}
