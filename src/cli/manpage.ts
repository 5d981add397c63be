/** Manual pages, made from the definitions of the commands: they say what --help says. */
import type { EventEmitter } from 'node:events';
import type { Command } from 'commander';

/** The name of a command's page: `wasm-roce`, `wasm-roce-send-bw` ... */
export function pageName(command: Command): string {
  return command.parent ? `${pageName(command.parent)}-${command.name()}` : command.name();
}

/** Returns the pages of a program and its visible commands by file name, in the format of man(7). */
export function manPages(program: Command): Map<string, string> {
  const commands = withSubcommands(program);
  return new Map(commands.map((command) => [`${pageName(command)}.1`, manPage(command)]));
}

/** The visible commands, without the one that only prints help. */
const subcommands = (command: Command) =>
  command
    .createHelp()
    .visibleCommands(command)
    .filter((sub) => sub.name() !== 'help');

const withSubcommands = (command: Command): Command[] => [
  command,
  ...subcommands(command).flatMap((sub) => withSubcommands(sub)),
];

/** Returns the page of a command. */
export function manPage(command: Command): string {
  const help = command.createHelp();
  const name = pageName(command);
  const summary = command.parent ? command.summary() : command.description();
  const list = (items: readonly (readonly [string, string])[]) =>
    items.flatMap(([term, text]) => ['.TP', `\\fB${roff(term)}\\fR`, roffLine(text)]);
  const section = (title: string, lines: readonly string[]) =>
    lines.length > 0 ? [`.SH ${quote(title.toUpperCase())}`, ...lines] : [];
  const usage = help.commandUsage(command).replace(/^\S+/, '');
  const options = help.visibleOptions(command);
  const commands = subcommands(command);
  return [
    `.TH ${quote(name.toUpperCase())} 1 "" "wasm-roce" "User Commands"`,
    ...section('Name', [`${roff(name)} \\- ${roff(summary)}`]),
    ...section('Synopsis', [`.B wasm\\-roce`, roffLine(usage.trim())]),
    ...section('Description', [roffLine(help.commandDescription(command))]),
    ...section(
      'Arguments',
      list(
        help
          .visibleArguments(command)
          .map((argument) => [help.argumentTerm(argument), help.argumentDescription(argument)]),
      ),
    ),
    ...[
      ...help.groupItems(command.options.slice(), options, (option) => option.helpGroupHeading ?? 'Options:'),
    ].flatMap(([title, group]) =>
      section(
        title.replace(/:$/, ''),
        list(group.map((option) => [help.optionTerm(option), help.optionDescription(option)])),
      ),
    ),
    ...[...help.groupItems(command.commands.slice(), commands, (sub) => sub.helpGroup() || 'Commands:')].flatMap(
      ([title, group]) =>
        section(
          title.replace(/:$/, ''),
          list(group.map((sub) => [help.subcommandTerm(sub), help.subcommandDescription(sub)])),
        ),
    ),
    ...textAfter(command),
    ...section('See also', [
      (command.parent ? [command.parent] : commands).map((other) => `\\fB${roff(pageName(other))}\\fR(1)`).join(',\n'),
    ]),
    '',
  ].join('\n');
}

/** The text that --help prints after the options: paragraphs, and sections for examples and the exit status. */
function textAfter(command: Command): string[] {
  let text = '';
  // what addHelpText has registered; commander's types leave out that a command is an emitter
  (command as Command & EventEmitter).emit('afterHelp', {
    error: false,
    command,
    write: (more: string) => {
      text += more;
    },
  });
  const blocks = text
    .trim()
    .split(/\n\s*\n/)
    .filter((block) => block !== '');
  const titled = /^(Examples|Exit status):\s/;
  const notes = blocks.filter((block) => !titled.test(block));
  const own = blocks.flatMap((block) => {
    const [all = '', title = ''] = titled.exec(block) ?? [];
    return all === '' ? [] : [`.SH ${quote(title.toUpperCase())}`, ...paragraph(block.slice(all.length))];
  });
  return [
    ...(notes.length > 0 ? ['.SH NOTES', ...notes.flatMap((block) => ['.PP', ...paragraph(block)])] : []),
    ...own,
  ];
}

/** Text as it is; lines that are indented are kept apart. */
function paragraph(block: string): string[] {
  const lines = block.split('\n');
  const isTable = lines.some((line) => /^ {2}/.test(line)) || lines.some((line) => line.startsWith('wasm-roce '));
  return isTable ? ['.nf', ...lines.map((line) => roffLine(line)), '.fi'] : [roffLine(lines.join(' '))];
}

const roff = (text: string) => text.replace(/\\/g, '\\e').replace(/-/g, '\\-').replace(/\n/g, ' ');
/** At the start of a line, a dot or an apostrophe would be a request. */
const roffLine = (text: string) => roff(text).replace(/^(?=[.'])/, '\\&');
const quote = (text: string) => `"${text.replace(/"/g, '')}"`;
