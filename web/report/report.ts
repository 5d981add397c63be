/** The program of a report page: filters and opens checks, and puts ladders into those that are looked at. */
function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found as T;
}

const root = document.documentElement;
const checks = Array.from(document.querySelectorAll<HTMLDetailsElement>('.check'));
const escaped = (text: string) => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);

/** Data of the page for its program. */
interface Data {
  /** The page of a ladder, with {{title}} and {{data}} in place of these. */
  readonly template: string;
  /** The data of each check's ladder, by the check's name. */
  readonly ladders: Readonly<Record<string, string>>;
}

/** Puts the ladder of a check into its place. */
function embed(place: HTMLElement, template: string, data: string): void {
  const { title = '' } = place.dataset;
  const parts: Readonly<Record<string, string>> = { title: escaped(title), data };
  const frame = document.createElement('iframe');
  frame.title = `Packets of check ${title}`;
  // a ladder takes the focus when it is ready, unless it is inert
  frame.srcdoc = template
    .replace('<body>', '<body inert>')
    .replace(/\{\{(title|data)\}\}/g, (_, name: string) => parts[name] as string);
  frame.addEventListener('load', () => {
    const body = frame.contentDocument?.body;
    const observer = new MutationObserver(finish);
    function finish(): void {
      if (body?.dataset.ready === undefined) return;
      observer.disconnect();
      body.inert = false;
      followTheme(frame);
    }
    if (body) observer.observe(body, { attributes: true });
    finish();
  });
  place.append(frame);
}

function embedWhenSeen(): void {
  const { template, ladders }: Data = JSON.parse(element('data').textContent ?? '');
  // a closed check has no boxes, so that nothing in it is in view
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const data = ladders[(target as HTMLElement).dataset.check ?? ''];
        if (!isIntersecting || data === undefined) continue;
        observer.unobserve(target);
        embed(target as HTMLElement, template, data);
      }
    },
    { rootMargin: '400px' },
  );
  for (const place of Array.from(document.querySelectorAll('.ladder'))) observer.observe(place);
}

const isDark = (of = document) => of.documentElement.classList.contains('dark');

/** Gives the page in a frame the theme of this one. */
function followTheme({ contentDocument: page }: HTMLIFrameElement): void {
  if (page?.body && !page.body.inert && isDark(page) !== isDark()) page.getElementById('theme')?.click();
}

function setTheme(dark: boolean): void {
  root.classList.toggle('dark', dark);
  document.querySelectorAll('iframe').forEach(followTheme);
}

function filter(): void {
  const kinds = Array.from(
    document.querySelectorAll<HTMLInputElement>('#verdicts input:checked'),
    ({ value }) => value,
  );
  for (const check of checks) check.hidden = !kinds.some((kind) => check.classList.contains(kind));
}

/** Opens a check and goes to it. */
function show(check: HTMLDetailsElement): void {
  check.open = true;
  check.querySelector('summary')?.focus({ preventScroll: true });
  check.scrollIntoView({ block: 'start' });
}

/** Goes to the next check in a direction that deviates or fails. */
function finding(step: 1 | -1): void {
  const at = checks.findIndex((check) => check.contains(document.activeElement));
  const isFinding = (check: HTMLDetailsElement) => !check.hidden && check.matches('.fails, .deviates');
  const others = step === 1 ? checks.slice(at + 1) : checks.slice(0, at < 0 ? checks.length : at).reverse();
  const next = others.find(isFinding);
  if (next !== undefined) show(next);
}

function openAll(): void {
  const isAnyClosed = checks.some((check) => !check.hidden && !check.open);
  for (const check of checks) check.open = isAnyClosed;
  element('open').textContent = isAnyClosed ? 'close all' : 'open all';
}

function showHash(): void {
  const check = checks.find(({ id }) => `#${id}` === location.hash);
  if (check !== undefined) show(check);
}

const ACTIONS: Readonly<Record<string, () => void>> = {
  n: () => finding(1),
  p: () => finding(-1),
  o: openAll,
  t: () => setTheme(!isDark()),
};
for (const [id, key] of [
  ['next', 'n'],
  ['previous', 'p'],
  ['open', 'o'],
  ['theme', 't'],
] as const)
  element(id).addEventListener('click', () => ACTIONS[key]?.());
addEventListener('keydown', (event) => {
  if (!event.ctrlKey && !event.altKey && !event.metaKey) ACTIONS[event.key]?.();
});
addEventListener('hashchange', showHash);
// checks that are gone to stop below the tools, which need more lines in a narrow window
new ResizeObserver(() => root.style.setProperty('--tools', `${element('tools').offsetHeight}px`)).observe(
  element('tools'),
);
element('verdicts').addEventListener('change', filter);
element('tools').addEventListener('submit', (event) => event.preventDefault());
setTheme(matchMedia('(prefers-color-scheme: dark)').matches);
// the browser restores boxes that were cleared before a reload
filter();
showHash();
embedWhenSeen();
document.body.dataset.ready = 'true';
