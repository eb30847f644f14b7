/**
 * To how many rows a batch of `rows` must be padded so that every row's result has the same bits whatever else is in
 * the batch. Matrix kernels differ by number of rows: ggml has another kernel for one row of F16, and repacked Q4_K
 * takes four rows at a time and sends the rest elsewhere.
 */
export type RowRule = (rows: number) => number;

/** No padding. */
export const anyRows: RowRule = (rows) => rows;
/** At least so many. */
export const atLeast =
  (minimum: number): RowRule =>
  (rows) =>
    Math.max(rows, minimum);
/** Whole groups only. */
export const multipleOf =
  (group: number): RowRule =>
  (rows) =>
    Math.ceil(rows / group) * group;
