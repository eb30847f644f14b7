/**
 * The number of rows to which a batch of `rows` must be padded, so that every row's result has the same bits in any
 * batch. ggml's kernels differ by the number of rows: F16 has another kernel for one row. Repacked Q4_K has a kernel
 * for four rows at a time and another kernel for the remaining rows.
 */
export type RowRule = (rows: number) => number;

/** No padding. */
export const anyRows: RowRule = (rows) => rows;
/** At least `minimum` rows. */
export const atLeast =
  (minimum: number): RowRule =>
  (rows) =>
    Math.max(rows, minimum);
/** A multiple of `group` rows. */
export const multipleOf =
  (group: number): RowRule =>
  (rows) =>
    Math.ceil(rows / group) * group;
