/** Reads the sections of a WebAssembly binary that list its imports, globals and data. */
import { numberHex } from '../../src/probe/packet/hex.js';

export interface WasmModule {
  /** "module.name", with the kind: function, table, memory, global. */
  imports: { name: string; kind: string }[];
  exports: { name: string; kind: string; index: number }[];
  /** The module's own globals in order, without imported ones. */
  globals: { mutable: boolean }[];
  dataSegments: { active: boolean; bytes: number }[];
}

const KINDS = ['function', 'table', 'memory', 'global', 'tag'];

class Cursor {
  at = 0;
  constructor(readonly bytes: Uint8Array) {}
  byte(): number {
    const value = this.bytes[this.at++];
    if (value === undefined) throw new RangeError('the module ends in the middle of a section');
    return value;
  }
  /** Reads an unsigned LEB128 of up to 32 bits. */
  u32(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
  }
  skip(count: number): this {
    this.at += count;
    return this;
  }
  /** Skips a signed or unsigned LEB128 of any width. */
  skipLeb(): void {
    while (this.byte() >= 0x80);
  }
  text(): string {
    const length = this.u32();
    const from = this.at;
    return new TextDecoder().decode(this.bytes.subarray(from, this.skip(length).at));
  }
  list<T>(read: () => T): T[] {
    return Array.from({ length: this.u32() }, read);
  }
  limits(): void {
    const hasMaximum = (this.byte() & 1) === 1;
    this.skipLeb();
    if (hasMaximum) this.skipLeb();
  }
  /** Skips a constant expression up to its end. */
  skipConstant(): void {
    for (let opcode = this.byte(); opcode !== 0x0b; opcode = this.byte()) {
      if (opcode === 0x41 || opcode === 0x42 || opcode === 0x23 || opcode === 0xd2) this.skipLeb();
      else if (opcode === 0x43) this.skip(4);
      else if (opcode === 0x44) this.skip(8);
      else if (opcode === 0xd0) this.skip(1);
      else if (opcode === 0xfd && this.u32() === 12) this.skip(16);
      else throw new RangeError(`instruction ${numberHex(opcode)} in a constant expression`);
    }
  }
}

function readImport(from: Cursor): WasmModule['imports'][number] {
  const name = `${from.text()}.${from.text()}`;
  const kind = from.byte();
  if (kind === 0) from.skipLeb();
  if (kind === 1) from.skip(1);
  if (kind === 1 || kind === 2) from.limits();
  if (kind === 3) from.skip(2);
  return { name, kind: KINDS[kind] ?? `kind ${kind}` };
}

function readSegment(from: Cursor): WasmModule['dataSegments'][number] {
  const mode = from.u32();
  if (mode === 2) from.skipLeb();
  if (mode !== 1) from.skipConstant();
  const bytes = from.u32();
  from.skip(bytes);
  return { active: mode !== 1, bytes };
}

/** @throws RangeError when the bytes are not a WebAssembly module */
export function parseWasm(bytes: Uint8Array): WasmModule {
  const from = new Cursor(bytes);
  if (new TextDecoder().decode(bytes.subarray(0, 4)) !== '\0asm') throw new RangeError('not a WebAssembly module');
  const module: WasmModule = { imports: [], exports: [], globals: [], dataSegments: [] };
  for (from.at = 8; from.at < bytes.length; ) {
    const section = from.byte();
    const end = from.u32() + from.at;
    if (section === 2) module.imports = from.list(() => readImport(from));
    if (section === 6)
      module.globals = from.list(() => {
        const mutable = from.skip(1).byte() === 1;
        from.skipConstant();
        return { mutable };
      });
    if (section === 7)
      module.exports = from.list(() => {
        const name = from.text();
        return { name, kind: KINDS[from.byte()] ?? '?', index: from.u32() };
      });
    if (section === 11) module.dataSegments = from.list(() => readSegment(from));
    from.at = end;
  }
  return module;
}
