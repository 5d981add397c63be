// The functions that the card imports, from the module that has the name of this file: accesses to registered memory
// outside of the card's (host/place). Numbers are unsigned; the parameters are signed, whose bits count, so that the
// card's bindings pass them as they are. Each function checks again that the access is inside a region and within its
// rights. It returns 0 if not, and then has done nothing.

/** Copies `bytes` of a region from `offset` on to the card's memory. */
export declare function fetch(region: i32, offset: i32, to: i32, bytes: i32): i32;

/** Copies `bytes` of the card's memory to a region. */
export declare function place(region: i32, offset: i32, from: i32, bytes: i32): i32;

/**
 * Performs an AtomicOperation on the 8 bytes at `offset`: atomic also against other threads if they are aligned. Its
 * two operands are at `operands`, where the first one becomes the original value.
 */
export declare function atomic(region: i32, offset: i32, operation: i32, operands: i32): i32;
