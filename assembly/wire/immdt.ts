// Immediate data (IBTA 9.3.7): four bytes that pass from work request to completion unconverted, hence no byte swap
// here.

export const IMMDT_BYTES: u32 = 4;

@unmanaged
@final
export class ImmDt {
  static at(ptr: usize): ImmDt {
    return changetype<ImmDt>(ptr);
  }
  private get ptr(): usize {
    return changetype<usize>(this);
  }

  get raw(): u32 {
    return load<u32>(this.ptr);
  }
  write(raw: u32): void {
    store<u32>(this.ptr, raw);
  }
}
