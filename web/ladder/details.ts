/** The fields of the packet that the reader has chosen. */

import { type LadderPacket, TROUBLE } from '../../src/probe/ladder/packet.js';
import { decodePacket } from '../../src/probe/packet/decode.js';
import { timeText } from './dom.js';
import { fieldsOf } from './fields.js';

/** Shows label, note and header fields of a packet in place of what an element has shown. */
export function showDetails(details: HTMLElement, packet: LadderPacket): void {
  details.replaceChildren();
  const add = (tag: string, text: string, name = '') => {
    const child = document.createElement(tag);
    child.textContent = text;
    child.className = name;
    details.append(child);
    return child;
  };
  add('h2', `Packet ${packet.number}`);
  add('p', packet.label);
  if (packet.note !== '') add('p', packet.note, packet.marks & TROUBLE ? 'note' : '');
  const table = add('table', '') as HTMLTableElement;
  const rows: [string, string][] = [
    ['time', timeText(packet.time)],
    ...packet.outer.split(' / ').map((outer): [string, string] => ['around', outer]),
    ...fieldsOf(packet.headers, decodePacket),
  ];
  for (const [name, value] of rows) {
    const row = table.insertRow();
    const head = document.createElement('th');
    head.scope = 'row';
    head.textContent = name;
    row.append(head);
    row.insertCell().textContent = value;
  }
}
