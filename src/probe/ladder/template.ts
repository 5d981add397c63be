/** Fills the pages of web/ with what they show. */
import { readFileSync } from 'node:fs';
import { packageFile } from '../../packagefile.js';

/** Returns text as HTML, for elements and for attributes in double quotes. */
export const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);

/** Returns a value as JSON that may stand in a script element. */
export const embedded = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

/** Returns a file of dist/web. */
export const webFile = (path: string): string => readFileSync(packageFile(`dist/web/${path}`), 'utf8');

/**
 * Returns a page of web/ with its style and its program.
 * @param parts texts for `{{name}}` in the page; names that are not given stay
 */
export function fillPage(name: string, parts: Readonly<Record<string, string>>): string {
  const own: Readonly<Record<string, string>> = {
    style: webFile(`${name}.css`),
    // the text of the program must not end its element
    script: webFile(`${name}.js`).replaceAll('</script', '<\\/script'),
    ...parts,
  };
  return webFile(`${name}.html`).replace(/\{\{(\w+)\}\}/g, (all, part: string) => own[part] ?? all);
}
