/** Runs `run` for all items, in their order, `countMax` at once. */
export async function inFlight<T>(
  items: readonly T[],
  countMax: number,
  run: (item: T, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let i = next++; i < items.length; i = next++) await run(items[i]!, i);
  };
  await Promise.all(Array.from({ length: countMax }, work));
}
