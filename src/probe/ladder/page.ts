/** Writes a ladder as one HTML page that needs no network. */
import { deflateRawSync } from 'node:zlib';
import type { Ladder } from './analysis.js';
import { pack } from './pack.js';
import { escaped, fillPage } from './template.js';

/**
 * Returns the page of a ladder.
 * @param title shown in the page's head, usually the capture's name
 */
export function ladderPage(ladder: Ladder, title: string): string {
  return fillPage('ladder', { title: escaped(title), data: ladderData(ladder) });
}

/** Returns a ladder in the form in which its page holds it. */
export const ladderData = (ladder: Ladder): string => deflateRawSync(JSON.stringify(pack(ladder))).toString('base64');

/** Returns the page of a ladder with `{{title}}` and `{{data}}` in place of these. */
export const ladderTemplate = (): string => fillPage('ladder', {});
