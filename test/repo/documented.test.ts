// Every symbol that an entry of the package exports, and every public member of these symbols, has a JSDoc description.
// TypeScript attaches no JSDoc to the names of a destructuring: such exports need a declaration of their own.
import { join, relative } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { ROOT } from './sources.js';

interface Item {
  /** `path:line`, from the project's folder. */
  at: string;
  /** `Symbol`, or `Symbol.member`. */
  name: string;
  documented: boolean;
}

const STRUCTURED = ts.TypeFlags.Object | ts.TypeFlags.Intersection;
const HIDDEN = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;

/** Lists the exported symbols of a module and their public members. Each declaration is listed once. */
class PublicApi {
  readonly items: Item[] = [];
  readonly #checker: ts.TypeChecker;
  readonly #entry: ts.Symbol;
  readonly #seen = new Set<ts.Declaration>();

  /** @param path the module, from the project's folder */
  constructor(path: string) {
    const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), ts.sys.readFile);
    const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
    const program = ts.createProgram([join(ROOT, path)], options);
    this.#checker = program.getTypeChecker();
    const source = program.getSourceFile(join(ROOT, path));
    const entry = source && this.#checker.getSymbolAtLocation(source);
    if (entry === undefined) throw new Error(`${path} exports nothing`);
    this.#entry = entry;
    for (const symbol of this.#checker.getExportsOfModule(entry)) this.#addExport(symbol);
  }

  /** The number of names that the module exports. */
  get exportCount(): number {
    return this.#checker.getExportsOfModule(this.#entry).length;
  }

  #addExport(exported: ts.Symbol): void {
    const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? this.#checker.getAliasedSymbol(exported) : exported;
    this.#add(symbol, exported.name);
    for (const type of this.#types(symbol)) {
      const parts = type.isUnion() ? type.types : [type];
      for (const part of parts) this.#addMembers(part, exported.name, this.#discriminants(parts));
    }
  }

  /** Returns the types with the public members of a symbol; none for a function. */
  #types(symbol: ts.Symbol): ts.Type[] {
    const types: ts.Type[] = [];
    if (symbol.flags & ts.SymbolFlags.Type) types.push(this.#checker.getDeclaredTypeOfSymbol(symbol));
    if (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Variable | ts.SymbolFlags.Enum)) {
      types.push(this.#checker.getTypeOfSymbol(symbol));
    }
    return types;
  }

  /** Returns the names of the properties that distinguish the parts of a union. They need no description. */
  #discriminants(parts: readonly ts.Type[]): Set<string> {
    const [first, ...others] = parts;
    if (first === undefined || others.length === 0 || !(first.flags & STRUCTURED)) return new Set();
    const isLiteral = (type: ts.Type): boolean => (type.isUnion() ? type.types.every(isLiteral) : type.isLiteral());
    const tellsApart = ({ name }: ts.Symbol) =>
      parts.every((part) => {
        const property = part.getProperty(name);
        return property !== undefined && isLiteral(this.#checker.getTypeOfSymbol(property));
      });
    return new Set(
      first
        .getProperties()
        .filter(tellsApart)
        .map(({ name }) => name),
    );
  }

  #addMembers(type: ts.Type, owner: string, except: ReadonlySet<string>): void {
    if (!(type.flags & STRUCTURED)) return;
    for (const member of type.getProperties()) {
      // TypeScript calls the member [Symbol.dispose] `__@dispose@12`.
      const name = member.name.replace(/^__@(\w+)@\d+$/, '[Symbol.$1]');
      if (!except.has(member.name)) this.#add(member, `${owner}.${name}`);
    }
  }

  #add(symbol: ts.Symbol, name: string): void {
    const own = (symbol.declarations ?? []).filter((declaration) => this.#isPublic(declaration));
    const [first] = own;
    if (first === undefined || this.#seen.has(first)) return;
    for (const declaration of own) this.#seen.add(declaration);
    if (symbol.getJsDocTags(this.#checker).some((tag) => tag.name === 'internal')) return;
    const source = first.getSourceFile();
    const { line } = source.getLineAndCharacterOfPosition(first.getStart(source));
    const description = ts.displayPartsToString(symbol.getDocumentationComment(this.#checker)).trim();
    this.items.push({ at: `${relative(ROOT, source.fileName)}:${line + 1}`, name, documented: description !== '' });
  }

  /** Returns whether it is declared in the project, and neither #private, private nor protected. */
  #isPublic(declaration: ts.Declaration): boolean {
    if (!relative(ROOT, declaration.getSourceFile().fileName).startsWith('src/')) return false;
    if (ts.getCombinedModifierFlags(declaration) & HIDDEN) return false;
    const name = ts.getNameOfDeclaration(declaration);
    return name === undefined || !ts.isPrivateIdentifier(name);
  }
}

test.each([
  ['src/index.ts', 80, 400],
  ['src/probe.ts', 25, 80],
  ['src/net.ts', 8, 40],
  ['src/dgram.ts', 4, 20],
  ['src/collective.ts', 10, 40],
  ['src/nvme.ts', 12, 40],
  ['src/rpc.ts', 10, 40],
  ['src/connectrpc.ts', 3, 5],
  ['src/valkey.ts', 12, 40],
])(
  'every public export of %s and every public member of one has a description',
  (path, exports, members) => {
    const { items, exportCount } = new PublicApi(path);
    expect(exportCount).toBeGreaterThan(exports);
    expect(items.length).toBeGreaterThan(members);
    const missing = items.filter(({ documented }) => !documented);
    expect(missing.map(({ at, name }) => `${at} ${name}`)).toEqual([]);
  },
  60_000,
);
